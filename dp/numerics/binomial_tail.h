// How likely a Poisson batch is larger than a public size.
#pragma once

#include <cstdint>

namespace sotto {

// An upper bound of P[Binomial(n, rate) > most], at most 2 % above it where most >= n rate and
// n <= 10^10, and 1 where most is below the mean and the truth at least 1/2. 0 only when most >= n,
// otherwise at least the smallest normal double. Stirling's formula with the bounds of Robbins
// (1955), and a geometric bound of the terms that are not added up. Throws std::invalid_argument
// unless 1 <= n <= 2^53, most >= 0 and 0 < rate <= 1.
double binomial_tail(std::int64_t n, double rate, std::int64_t most);

}  // namespace sotto
