// The noise, the number of steps or the sampling rate for a privacy target, and how releases on one
// batch share the noise.
#pragma once

#include <cstdint>

#include "dp/accounting/accountant.h"

namespace sotto {

// `steps` releases, each on the next batch drawn like `batch`, must be (epsilon, delta) private for
// the accountant's relation. A pass that is begun counts whole.
struct PrivacyTarget {
  double epsilon = 1;
  double delta = 1e-5;
  Event batch = {};  // its noise multiplier is not read
  std::int64_t steps = 1;
  // The noise multiplier at step k = 0, 1, ..., from the first one, which is then what is searched
  // for or given; without it all are the same. Not for passes.
  std::function<double(std::int64_t step, double first)> noise_at = {};
};

// The functions below search with an accountant and return what meets the target by it, to
// 1e-7 of themselves or one pass. They throw std::invalid_argument unless epsilon is finite and
// > 0, delta in (0, 1), steps in [0, 2^53] and the batch a possible first one, and when the
// accountant has no proof for it.

// The smallest noise multiplier; 0 for no steps. Throws also when none up to 1e9 meets the target,
// or sampling_rate is 0.
double calibrate_noise_multiplier(const PrivacyTarget& target,
                                  const NewAccountant& accountant = make_accountant());

// The largest number of steps with this noise multiplier (the target's own `steps` is not read): 0
// when a single pass is too much, at most 2^53. Throws also unless noise_multiplier is finite and
// >= 0, or when sampling_rate is 0.
std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       const NewAccountant& accountant = make_accountant());

// The largest sampling rate with this noise multiplier (that of the target's batch is not read, and
// its `cut` must hold for the rate returned). Throws also unless noise_multiplier is finite and
// >= 0, when batches drawn like this have no rate, and when none from 1e-15 on meets the target.
double max_sampling_rate(double noise_multiplier, const PrivacyTarget& target,
                         const NewAccountant& accountant = make_accountant());

// Two Gaussian releases on one batch, each with the noise multiplier relative to its own
// sensitivity, are one: 1/joint^2 = 1/one^2 + 1/other^2 (Andrew et al. 2021, theorem 1, of clipped
// gradients and the count of those that were not clipped). Throws std::invalid_argument unless both
// are >= 0.
double joint_noise_multiplier(double one, double other);
// The one that is left for the second when both together may count as `joint`. Throws
// std::invalid_argument unless 0 <= joint < other.
double other_noise_multiplier(double joint, double one);

// The smallest standard deviation of the noise on each of `groups` counts
// (AdaptiveClipping::unclipped_count_stddev) with which the counts, and gradients released with
// this noise multiplier of their own, meet the target together. Throws also unless groups >= 1, and
// when the gradients alone do not meet it.
double calibrate_count_noise(double noise_multiplier, std::int64_t groups,
                             const PrivacyTarget& target,
                             const NewAccountant& accountant = make_accountant());

}  // namespace sotto
