// The probability that a Poisson batch exceeds a public size.
#pragma once

#include <cstdint>

namespace sotto {

// An upper bound on P[Binomial(n, rate) > most]: at most 2 % above it if most >= n rate and n <=
// 10^10; 1 if most is below the mean, where the probability is at least 1/2; 0 only if most >= n,
// otherwise at least the smallest normal double. By Stirling's formula with the bounds of Robbins
// (1955), and a geometric bound on the terms that are not added up. Throws std::invalid_argument
// unless 1 <= n <= 2^53, most >= 0 and 0 < rate <= 1.
double binomial_tail(std::int64_t n, double rate, std::int64_t max);

}  // namespace sotto
