// Counters of dropout's random numbers. An element's counter depends on its row and its indices
// within the row, not on sizes, so that padding a batch to its longest sample changes no draws.
// Device code can include this header.
#pragma once

#include <cstdint>

#include "core/random/philox.h"

namespace sotto {

// The key of one row's sequence.
HD inline PhiloxKey key_of_row(PhiloxKey key, std::uint64_t row) {
  return {philox_word(key, row), key.stream};
}

// The counter of element `index`, row-major, of a row with these axes: sum_k i[k] s^(axes - 1 - k)
// mod 2^64, for s = 2^64 divided by the golden ratio, which spreads multiples (Knuth, The Art of
// Computer Programming 3, 6.4). Elements along the last axis have consecutive counters.
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
