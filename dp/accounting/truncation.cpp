#include "dp/accounting/truncation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "dp/numerics/binomial_tail.h"
#include "dp/numerics/directed_rounding.h"

namespace sotto {

namespace {

constexpr double share = 0.5;  // fraction of delta that truncation may use

// The smallest bound that a batch exceeds with at most this probability.
std::int64_t min_bound(std::int64_t population, double rate, double cut) {
  std::int64_t low = 0, high = population + 1;  // no batch exceeds population + 1
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (binomial_tail(population + 1, rate, middle) <= cut ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::string truncation_problem(std::optional<std::int64_t> population,
                               const PrivacyTarget& target) {
  const Event& batch = target.batch;
  if (batch.sampling != Sampling::truncated_poisson || batch.truncation_probability == 0) return "";
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, target.steps));
  const double max = share * target.delta / (1 + std::exp(target.epsilon)) / steps;
  if (batch.truncation_probability <= max) return "";
  const std::string enough =
      population
          ? fmt::format("bound of {} units", min_bound(*population, batch.sampling_rate, max))
          : fmt::format("probability of {}", rounded_down(max));
  return fmt::format(
      "batches would lose units with a probability of up to {} a step, which takes more than half "
      "of delta {} at epsilon {} in {} steps: a {} would do",
      rounded_up(batch.truncation_probability), delta_text(target.delta),
      epsilon_text(target.epsilon), steps, enough);
}

std::string truncation_problem(std::optional<std::int64_t> population,
                               PrivacyTarget delta_and_steps, const Accountant& without_cut) {
  delta_and_steps.epsilon = without_cut.epsilon((1 - share) * delta_and_steps.delta);
  if (std::isinf(delta_and_steps.epsilon)) return "";
  return truncation_problem(population, delta_and_steps);
}

}  // namespace sotto
