// The cost of the bound of truncated Poisson batches, and the bound that would do.
#pragma once

#include <optional>
#include <string>

#include "dp/accounting/calibration.h"

namespace sotto {

// Why the bound of these truncated Poisson batches is too small: what lost units add to delta
// (docs/accounting.md, "Lost records"), (1 + e^epsilon) cut for each step, is more than half of the
// target's delta at its epsilon. Names the least bound that keeps within it, or the largest cut
// where the population is not known: "batches would lose units with a probability of up to 0.52 a
// step,
// ...: a bound of 311 units would do". Empty where the bound is not too small, and for batches of
// other samplings.
std::string truncation_problem(std::optional<std::int64_t> population, const PrivacyTarget& target);

// The same without a target: at the epsilon that the releases spend within the other half of delta,
// by an accountant that has composed them without the cut. Empty, too, where that is infinite.
std::string truncation_problem(std::optional<std::int64_t> population,
                               PrivacyTarget delta_and_steps, const Accountant& without_cut);

}  // namespace sotto
