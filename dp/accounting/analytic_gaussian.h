// The exact privacy of the Gaussian mechanism without sampling (Balle and Wang 2018). `steps`
// releases with noise multiplier sigma equal one with sigma / sqrt(steps). Computed in logarithms,
// down to delta around 1e-300. Derivation in docs/appendix/proofs-accounting.md.
#pragma once

#include <cstdint>

namespace sotto {

// The smallest delta for which the mechanism is (epsilon, delta) private when a record is added or
// removed. Throws std::invalid_argument unless noise_multiplier >= 0, epsilon >= 0 (both finite)
// and steps >= 0.
double gaussian_delta(double noise_multiplier, double epsilon, std::int64_t steps = 1);

// The smallest epsilon, rounded up by a relative 1e-13 at most: 0 if delta allows it, infinity
// without noise. Throws std::invalid_argument unless delta is in (0, 1).
double gaussian_epsilon(double noise_multiplier, double delta, std::int64_t steps = 1);

// The smallest noise multiplier, rounded up by a relative 1e-13 at most; 0 for no steps.
double gaussian_noise_multiplier(double epsilon, double delta, std::int64_t steps = 1);

}  // namespace sotto
