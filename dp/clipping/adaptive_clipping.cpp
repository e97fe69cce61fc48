#include "dp/clipping/adaptive_clipping.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sotto {

namespace {

bool positive(double x) { return x > 0 && std::isfinite(x); }

}  // namespace

void AdaptiveClipping::validate() const {
  check(quantile >= 0 && quantile <= 1, "adaptive clipping: quantile {} outside [0, 1]", quantile);
  check(positive(learning_rate), "adaptive clipping: learning rate {}", learning_rate);
  check(!unclipped_count_stddev || positive(*unclipped_count_stddev),
        "adaptive clipping: count noise {}", unclipped_count_stddev.value_or(0));
  check(positive(min_bound) && min_bound <= max_bound && std::isfinite(max_bound),
        "adaptive clipping: bounds from {} to {}", min_bound, max_bound);
}

double AdaptiveClipping::unclipped_count_stddev_for(double expected_batch_size) const {
  constexpr double fraction_of_batch = 0.05;  // Andrew et al. 2021, section 3.1
  return unclipped_count_stddev.value_or(fraction_of_batch * expected_batch_size);
}

std::vector<double> AdaptiveClipping::next(const std::vector<double>& bounds,
                                           const std::vector<double>& unclipped_fraction) const {
  check(bounds.size() == unclipped_fraction.size(), "adaptive clipping: {} counts of {} bounds",
        unclipped_fraction.size(), bounds.size());
  std::vector<double> moved;
  for (std::size_t k = 0; k < bounds.size(); ++k) {
    const double fraction = std::clamp(unclipped_fraction[k], 0.0, 1.0);
    const double bound = bounds[k] * std::exp(-learning_rate * (fraction - quantile));
    moved.push_back(std::clamp(bound, min_bound, max_bound));
  }
  return moved;
}

}  // namespace sotto
