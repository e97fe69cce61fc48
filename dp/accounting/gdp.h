// The central limit of many small steps as one Gaussian release (Gaussian DP). It is no guarantee:
// the limit lies below the true epsilon as often as above it. Use it only to compare with published
// numbers.
#pragma once

#include <cstdint>

namespace sotto {

// The parameter mu of the limit: distinguishing neighbouring data sets is as hard as distinguishing
// N(0, 1) from N(mu, 1). For Poisson sampling with rate q (Bu, Dong, Long and Su 2020, theorem 5):
//   mu = q sqrt(steps (e^{1/sigma^2} - 1)).
// For independent phases, mu is the root of the sum of their squares. Throws std::invalid_argument
// unless q is in [0, 1], sigma > 0 and steps >= 0.
double gdp_poisson(double sampling_rate, double noise_multiplier, std::int64_t steps);

// mu for batches of a fixed size, drawn without replacement (Bu et al. 2020, theorem 4; Dong, Roth
// and Su 2022):
//   mu = q sqrt(2 steps) sqrt(e^{1/sigma^2} Phi(1.5/sigma) + 3 Phi(-0.5/sigma) - 2).
double gdp_fixed_size(double sampling_rate, double noise_multiplier, std::int64_t steps);

// The limit's epsilon for delta in (0, 1), and its delta for a finite epsilon >= 0. Both throw
// std::invalid_argument for other arguments, and unless mu >= 0.
double gdp_epsilon(double mu, double delta);
// The limit's delta: Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2).
double gdp_delta(double mu, double epsilon);

}  // namespace sotto
