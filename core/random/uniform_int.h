// Unbiased integers from 64-bit words, for either kind of randomness.
#pragma once

#include <cstdint>

namespace sotto {

// Every integer in [0, n) with the same probability, n >= 1, from independent uniform words:
// words under 2^64 mod n are drawn again, so that the rest is a multiple of n.
template <class Words>
std::int64_t uniform_int(std::int64_t n, Words&& words) {
  const auto m = static_cast<std::uint64_t>(n);
  std::uint64_t word = words();
  // 2^64 mod n is below n, so that for all but the smallest words there is no need to know it.
  if (word < m) {
    const std::uint64_t excess = (0 - m) % m;
    while (word < excess) word = words();
  }
  return static_cast<std::int64_t>(word % m);
}

}  // namespace sotto
