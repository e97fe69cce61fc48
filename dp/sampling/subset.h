// Random subsets of units, exactly: with integers alone, and no probability that is rounded.
// docs/privacy.md, "Sampling", has the arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random/secret_random.h"

namespace sotto {

// Takes every unit with the same probability, independently of all others and of other draws. The
// probability is a multiple of 2^-64.
class IndependentSubset {
 public:
  // Of `rate`, rounded down to a multiple of 2^-64 but not to 0. Throws std::invalid_argument,
  // naming `op`, unless 0 < rate <= 1.
  IndependentSubset(const char* op, double rate);

  // Exactly the probability; rounded up where a double does not hold it.
  double rate() const;
  // Of [0, n), in rising order, by the route that is faster; both have the same distribution.
  std::vector<std::int64_t> draw(std::int64_t n, SecretRandom& random);
  // A 64-bit coin for every unit.
  std::vector<std::int64_t> sample_dense(std::int64_t n, SecretRandom& random);
  // Work in proportion to n rate, for small rates. Throws std::invalid_argument unless rate < 1/2.
  std::vector<std::int64_t> sample_sparse(std::int64_t n, SecretRandom& random);

 private:
  struct Dart {
    std::int64_t place;
    bool taken;
  };
  int zeros() const;
  bool heads(std::uint16_t first_bits, SecretRandom& random) const;
  void throw_darts(SecretRandom& random);

  std::uint64_t threshold_;  // 0 stands for 2^64: everybody
  std::vector<std::uint64_t> words_;
  std::vector<Dart> darts_;
};

// Every subset of `size` units of [0, n) with the same probability, in rising order (Floyd; Bentley
// and Floyd 1987). Needs 0 <= size <= n.
std::vector<std::int64_t> uniform_subset(std::int64_t n, std::int64_t size, SecretRandom& random);

}  // namespace sotto
