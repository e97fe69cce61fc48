// The smallest work that is worth a thread: some microseconds. Starting a thread costs half a
// microsecond, and much more when other processes compete for the cores.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sotto {

// Elements of an elementwise loop.
inline constexpr std::int64_t elementwise_grain = 16384;

// Elements of inner products that are worth a thread: they are four times as fast as the elements
// of loops that write.
inline constexpr std::int64_t dot_grain = 4 * elementwise_grain;

// Items of `work` multiply-adds each.
inline std::int64_t product_grain(std::int64_t work) {
  constexpr std::int64_t multiplications = 1 << 17;
  return 1 + multiplications / std::max<std::int64_t>(1, work);
}

}  // namespace sotto
