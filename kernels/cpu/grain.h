// How much work is worth a thread: some microseconds against half a one to start it, and much more
// where other processes want the cores.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sotto {

// In elements of an elementwise loop.
inline constexpr std::int64_t elementwise_grain = 16384;

// In items of `work` multiply-adds each.
inline std::int64_t product_grain(std::int64_t work) {
  constexpr std::int64_t multiplications = 1 << 17;
  return 1 + multiplications / std::max<std::int64_t>(1, work);
}

}  // namespace sotto
