// Tails of the binomial distribution, and what a count proves about a probability.
#pragma once

#include <cstdint>

namespace sotto {

struct BinomialTail {
  double probability;  // P[X >= k]
  double over_mass;    // P[X >= k] / P[X = k]; infinite where the divisor is too small for a double
};

// Of X ~ Binomial(n, p), to about 1e-15 n ln n of itself; `over_mass` holds its digits where the
// probabilities themselves are too small for a double. Throws std::invalid_argument unless
// 0 <= k <= n and p is in [0, 1].
BinomialTail binomial_tail(std::int64_t n, std::int64_t k, double p);

// The largest p for which k or fewer of n have a probability of at least 1 - confidence: an event
// that was seen k times in n independent trials is at most so probable, unless something of
// probability 1 - confidence has happened (Clopper and Pearson 1934). Rounded up by at most 1e-12
// of itself. Throws std::invalid_argument unless 0 <= k <= n, n >= 1 and confidence is in (1/2, 1).
double proportion_at_most(std::int64_t n, std::int64_t k, double confidence);

}  // namespace sotto
