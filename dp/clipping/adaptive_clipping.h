// Clip bounds that follow a quantile of the norms, privately.
#pragma once

#include <optional>
#include <vector>

namespace sotto {

// After each step every group's bound C becomes C exp(-learning_rate (b - quantile)), where b is
// the released fraction of units whose norm was within it (Andrew, Thakkar, Ramaswamy and McMahan
// 2021, algorithm 1): C settles where `quantile` of the norms are below it. The counts are released
// with the gradient, within the step's one noise multiplier (Mechanism::release).
struct AdaptiveClipping {
  double quantile = 0.5;
  double learning_rate = 0.2;
  // The standard deviation of the noise on each group's count; a twentieth of the expected batch
  // size unless it is given.
  std::optional<double> unclipped_count_stddev = {};
  // The range of the bounds.
  double min_bound = 1e-6, max_bound = 1e6;

  // Throws std::invalid_argument unless quantile is in [0, 1], learning_rate and the count noise
  // are positive and finite, and 0 < min_bound <= max_bound < infinity.
  void validate() const;
  double unclipped_count_stddev_for(double expected_batch_size) const;
  // The bounds after a step; unclipped_fraction is NoisyGradient's, clamped to [0, 1].
  std::vector<double> next(const std::vector<double>& bounds,
                           const std::vector<double>& unclipped_fraction) const;
};

}  // namespace sotto
