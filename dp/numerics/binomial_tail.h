// The probability that a Poisson batch exceeds a public size.
#pragma once

#include <cstdint>

namespace sotto {

// An upper bound on P[Binomial(n, rate) > max]. If max >= n rate and n <= 10^10, it exceeds the
// probability by at most 2 %. It is 1 if max is below the mean, where the probability is at least
// 1/2. It is 0 only if max >= n, and otherwise at least the smallest normal double. Method:
// Stirling's formula with the bounds of Robbins (1955), and a geometric bound on the terms that are
// not added. Throws std::invalid_argument unless 1 <= n <= 2^53, max >= 0 and 0 < rate <= 1.
double binomial_tail(std::int64_t n, double rate, std::int64_t max);

}  // namespace sotto
