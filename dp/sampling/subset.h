// Random subsets of units, sampled exactly: by integer arithmetic, with no rounded probability.
// docs/appendix/proofs-sampling.md, "Sampling", has the proofs.
#pragma once

#include <cstdint>
#include <vector>

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

// Samples every unit with the same probability, a multiple of 2^-64, independently of other units
// and other draws.
class IndependentSubset {
 public:
  // The probability is `rate`, rounded down to a multiple of 2^-64 but not to 0. Throws
  // std::invalid_argument, with `op` first, unless 0 < rate <= 1.
  IndependentSubset(const char* op, double rate);

  // The exact probability; rounded up if a double does not hold it.
  double rate() const;
  // A subset of [0, n) in increasing order, by the faster of the two functions below; both have the
  // same distribution.
  std::vector<std::int64_t> draw(std::int64_t n, SecretRandom& random);
  // Compares a 64-bit random number with the threshold for every unit.
  std::vector<std::int64_t> sample_dense(std::int64_t n, SecretRandom& random);
  // Takes time proportional to n rate, for small rates. Throws std::invalid_argument unless rate <
  // 1/2.
  std::vector<std::int64_t> sample_sparse(std::int64_t n, SecretRandom& random);

 private:
  std::uint64_t threshold_;           // the probability times 2^64; 0 stands for 2^64
  std::vector<std::uint64_t> words_;  // memory that sample_dense() reuses
};

// A uniform subset of `size` units of [0, n), in increasing order (Floyd; Bentley and Floyd 1987).
// Needs 0 <= size <= n.
std::vector<std::int64_t> uniform_subset(std::int64_t n, std::int64_t size, SecretRandom& random);

}  // namespace sotto
