// Tails of the binomial distribution, and bounds on a probability from a count.
#pragma once

#include <cstdint>

namespace sotto {

struct BinomialTail {
  double probability;  // P[X >= k]
  double over_mass;    // P[X >= k] / P[X = k]; infinite if P[X = k] underflows
};

// The tail of X ~ Binomial(n, p), with a relative error of about 1e-15 n ln n; `over_mass` is
// accurate even if the probabilities underflow. Throws std::invalid_argument unless 0 <= k <= n and
// p is in [0, 1].
BinomialTail binomial_at_least(std::int64_t n, std::int64_t k, double p);

// The largest p for which k or fewer successes in n trials have a probability of at least 1 -
// confidence: the upper Clopper-Pearson limit (1934) for an event seen k times in n independent
// trials. Rounded up by a relative 1e-12 at most. Throws std::invalid_argument unless 0 <= k <= n,
// n >= 1 and confidence is in (1/2, 1).
double proportion_at_most(std::int64_t n, std::int64_t k, double confidence);

}  // namespace sotto
