// Noise for a privacy target, and training length for a noise, by any accountant. Results are on
// the safe side of the exact root: what they promise holds by that accountant.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sotto/dp/accountant.h"
#include "sotto/dp/rdp.h"

namespace sotto {

// `steps` Poisson-sampled releases must be (epsilon, delta) private.
struct PrivacyTarget {
  double epsilon = 1;
  double delta = 1e-5;
  double sampling_rate = 1;
  std::int64_t steps = 1;
};

// Makes an accountant with an empty history.
using NewAccountant = std::function<std::unique_ptr<Accountant>()>;

NewAccountant by_rdp(std::vector<double> orders = default_orders());
// The least noise for a target that is known.
NewAccountant by_pld(Relation relation = Relation::add_or_remove_one);

// The smallest noise multiplier that meets the target, rounded up by at most 1e-7 of itself; 0 for
// no steps. Throws std::invalid_argument unless epsilon > 0, delta is in (0, 1), sampling_rate in
// (0, 1] and steps >= 0, or when no noise multiplier up to 1e9 meets the target by this accountant.
double calibrate_noise_multiplier(const PrivacyTarget& target,
                                  const NewAccountant& accountant = by_rdp());

// The largest number of steps with which this noise multiplier meets the target (whose own `steps`
// is not read): 0 when a single one is too many, at most 2^53. Throws std::invalid_argument as
// above and unless noise_multiplier is finite and >= 0.
std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       const NewAccountant& accountant = by_rdp());

}  // namespace sotto
