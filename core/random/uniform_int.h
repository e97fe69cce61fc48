// Unbiased integers from 64-bit words, for public and secret randomness.
#pragma once

#include <cstdint>

namespace sotto {

// Uniform on the integers of [0, n), n >= 1, from independent uniform words: words below 2^64 mod n
// are rejected, so that the number of remaining words is a multiple of n.
template <class Words>
std::int64_t uniform_int(std::int64_t n, Words&& words) {
  const auto m = static_cast<std::uint64_t>(n);
  std::uint64_t word = words();
  // 2^64 mod n is below n, so the division is needed only for words below n.
  if (word < m) {
    const std::uint64_t excess = (0 - m) % m;
    while (word < excess) word = words();
  }
  return static_cast<std::int64_t>(word % m);
}

}  // namespace sotto
