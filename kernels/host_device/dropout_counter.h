// The numbers by which dropout draws: an element's is made of its row and of its indices within the
// row, not of sizes, so that what a longer sample pads others with changes none of their draws.
// Device code can include this header.
#pragma once

#include <cstdint>

#include "core/random/philox.h"

namespace sotto {

// The sequence from which one row's elements are drawn.
HD inline PhiloxKey key_of_row(PhiloxKey key, std::uint64_t row) {
  return {philox_word(key, row), key.stream};
}

// Of element `index`, row-major, of a row with these axes: sum_k i[k] s^(axes - 1 - k) mod 2^64,
// for s = 2^64 divided by the golden ratio, which spreads multiples (Knuth, The Art of Computer
// Programming 3, 6.4). Elements along the last axis follow one another.
HD inline std::uint64_t rng_counter(const std::int64_t* sizes, int axes, std::int64_t index) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  std::uint64_t number = 0, step = 1;
  for (int axis = axes - 1; axis >= 0; --axis) {
    number += static_cast<std::uint64_t>(index % sizes[axis]) * step;
    index /= sizes[axis];
    step *= golden;
  }
  return number;
}

}  // namespace sotto
