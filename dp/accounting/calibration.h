// Searches of the noise, the number of steps or the sampling rate that meet a privacy target, and
// of how two releases on one batch share the noise.
#pragma once

#include <cstdint>

#include "dp/accounting/make_accountant.h"

namespace sotto {

// The target: `steps` releases, each on the next batch drawn like `batch`, are (epsilon, delta)
// private under the accountant's relation. An epoch that is begun counts as a whole.
struct PrivacyTarget {
  double epsilon = 1;      // of all releases together
  double delta = 1e-5;     // in (0, 1)
  Event batch = {};        // its noise multiplier is ignored
  std::int64_t steps = 1;  // number of releases
  // The noise multiplier at step k = 0, 1, ... as a function of the first one, which is then the
  // number searched for or given; if unset, it is constant. Not for samplings in epochs.
  std::function<double(std::int64_t step, double first)> noise_at = {};
};

// Each function searches with an accountant and returns a number that meets the target by it,
// within a relative 1e-7 or one epoch of the best. It throws std::invalid_argument unless epsilon
// is > 0 and at most 1e4, delta in (0, 1), steps in [0, 2^53] and the batch a possible first one,
// and when the accountant has no proof for the batch.

// The smallest noise multiplier; 0 for no steps. Throws also when none up to 1e9 meets the target,
// or sampling_rate is 0.
double calibrate_noise_multiplier(const PrivacyTarget& target,
                                  const AccountantFactory& accountant = accountant_factory());

// The largest number of steps, at most 2^53, with this noise multiplier (target.steps is ignored);
// 0 when a single epoch is too much. Throws also unless noise_multiplier is finite and >= 0, or
// when sampling_rate is 0.
std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       const AccountantFactory& accountant = accountant_factory());

// The largest sampling rate with this noise multiplier (that of target.batch is ignored, and its
// truncation_probability must hold for the rate returned). Throws also unless noise_multiplier is
// finite and >= 0, when the sampling has no rate, and when no rate from 1e-15 on meets the target.
double max_sampling_rate(double noise_multiplier, const PrivacyTarget& target,
                         const AccountantFactory& accountant = accountant_factory());

// The noise multiplier of two Gaussian releases on one batch taken as one, each multiplier relative
// to its own sensitivity: 1/joint^2 = 1/one^2 + 1/other^2 (Andrew et al. 2021, theorem 1, for
// clipped gradients and the count of unclipped ones). Throws std::invalid_argument unless both are
// >= 0.
double joint_noise_multiplier(double one, double other);
// The noise multiplier of the second release if the first has `one` and both together have `joint`.
// Throws std::invalid_argument unless 0 <= joint < one.
double other_noise_multiplier(double joint, double one);

// The smallest standard deviation of the noise on each of `groups` counts
// (AdaptiveClipping::unclipped_count_stddev) such that the counts, and gradients released with this
// noise multiplier of their own, meet the target together. Throws also unless groups >= 1, and when
// the gradients alone do not meet the target.
double calibrate_count_noise(double noise_multiplier, std::int64_t groups,
                             const PrivacyTarget& target,
                             const AccountantFactory& accountant = accountant_factory());

}  // namespace sotto
