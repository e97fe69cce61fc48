// The cost of truncating Poisson batches, and the smallest bound on the batch size whose cost is
// small.
#pragma once

#include <optional>
#include <string>

#include "dp/accounting/calibration.h"

namespace sotto {

// Why truncation costs too much: the delta it adds (docs/appendix/proofs-accounting.md, "Truncated
// Poisson batches"), (1 + e^epsilon) truncation_probability for each step, exceeds half of the
// target's delta. Names the smallest bound that keeps within half, or the largest truncation
// probability if the population is not known: "batches would lose units with a probability of up to
// 0.52 a step, ...: a bound of 311 units would do". Empty if the bound is large enough, and for
// other samplings.
std::string truncation_problem(std::optional<std::int64_t> population, const PrivacyTarget& target);

// Checks without a target epsilon: at the epsilon that the releases spend with the other half of
// delta, by an accountant that composed them without truncation. Empty if that epsilon is infinite.
std::string truncation_problem(std::optional<std::int64_t> population,
                               PrivacyTarget delta_and_steps, const Accountant& without_cut);

}  // namespace sotto
