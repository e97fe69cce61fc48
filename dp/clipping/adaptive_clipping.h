// Clip bounds that follow a quantile of the gradient norms, at a cost in privacy that is accounted.
#pragma once

#include <optional>
#include <vector>

namespace sotto {

// After each step every group's bound C becomes C exp(-learning_rate (b - quantile)), where b is
// the noisy fraction of units whose norm was within C (Andrew, Thakkar, Ramaswamy and McMahan 2021,
// algorithm 1). C settles where a fraction `quantile` of the norms is below it. The noisy counts
// are released with the gradient and covered by the step's noise multiplier (Mechanism::release).
struct AdaptiveClipping {
  double quantile = 0.5;       // fraction of norms to be within the bound
  double learning_rate = 0.2;  // of the logarithm of the bound
  // The standard deviation of the noise on each group's count. Default: 0.05 times the expected
  // batch size.
  std::optional<double> unclipped_count_stddev = {};
  // The range that bounds are clamped to.
  double min_bound = 1e-6, max_bound = 1e6;

  // Throws std::invalid_argument unless quantile is in [0, 1], learning_rate and the count noise
  // are positive and finite, and 0 < min_bound <= max_bound < infinity.
  void validate() const;
  // Returns unclipped_count_stddev or its default for this batch size.
  double unclipped_count_stddev_for(double expected_batch_size) const;
  // Returns the bounds after a step. unclipped_fraction is that of the NoisyGradient, one per
  // bound; values outside [0, 1] are clamped. Throws std::invalid_argument if the sizes differ.
  std::vector<double> next(const std::vector<double>& bounds,
                           const std::vector<double>& unclipped_fraction) const;
};

}  // namespace sotto
