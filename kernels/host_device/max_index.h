// The argmax that max pooling keeps per window. Device code can include this header.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace sotto {

// True if v replaces the maximum so far: the first of equal values stays, and NaN counts as the
// largest value.
template <class A>
HD bool takes_over(A v, A best) {
  return !((v <= best) | (best != best));
}

// Calls f(std::type_identity<I>{}) with the type of indices in a window: u8 or i32.
template <class F>
void with_index(Dtype dtype, F&& f) {
  if (dtype == Dtype::u8) {
    f(std::type_identity<std::uint8_t>{});
  } else {
    f(std::type_identity<std::int32_t>{});
  }
}

}  // namespace sotto
