#include "sotto/dp/calibration.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "sotto/core/error.h"
#include "sotto/dp/pld_accountant.h"
#include "sotto/dp/rdp_accountant.h"
#include "sotto/dp/search.h"

namespace sotto {

namespace {

void check_target(const char* op, const PrivacyTarget& target, const NewAccountant& accountant) {
  check(target.epsilon > 0 && std::isfinite(target.epsilon),
        "{}: epsilon {} is not a finite number > 0", op, target.epsilon);
  check(target.delta > 0 && target.delta < 1, "{}: delta {} is not in (0, 1)", op, target.delta);
  check(target.sampling_rate > 0 && target.sampling_rate <= 1,
        "{}: sampling rate {} is not in (0, 1]", op, target.sampling_rate);
  check(target.steps >= 0, "{}: {} steps", op, target.steps);
  check(accountant != nullptr, "{}: no accountant", op);
}

double spent(const NewAccountant& fresh, double noise_multiplier, const PrivacyTarget& target,
             std::int64_t steps) {
  const auto accountant = fresh();
  accountant->compose({noise_multiplier, Sampling::poisson, target.sampling_rate}, steps);
  return accountant->epsilon(target.delta);
}

}  // namespace

NewAccountant by_rdp(std::vector<double> orders) {
  return [orders = std::move(orders)] { return std::make_unique<RdpAccountant>(orders); };
}

NewAccountant by_pld(Relation relation) {
  return [relation] { return std::make_unique<PldAccountant>(relation); };
}

double calibrate_noise_multiplier(const PrivacyTarget& target, const NewAccountant& accountant) {
  check_target("calibrate_noise_multiplier", target, accountant);
  if (target.steps == 0) return 0;
  // Whoever adds the steps up one by one gets another rounding, far below this.
  constexpr double margin = 1e-9, tolerance = 1e-7, largest = 1e9;
  const auto excess = [&](double sigma) {
    return margin + std::log(spent(accountant, sigma, target, target.steps) / target.epsilon);
  };
  double low = 1, high = 1;
  while (excess(high) > 0) {
    low = high;
    high *= 2;
    check(high < largest,
          "calibrate_noise_multiplier: epsilon {} at delta {} is out of reach of the {} accountant",
          target.epsilon, target.delta, accountant()->name());
  }
  while (low == high || excess(low) <= 0) {
    high = low;
    low /= 2;
  }
  return safe_root(low, high, tolerance, excess);
}

std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       const NewAccountant& accountant) {
  check_target("max_steps", target, accountant);
  check(noise_multiplier >= 0 && std::isfinite(noise_multiplier),
        "max_steps: noise multiplier {} is not a finite number >= 0", noise_multiplier);
  const auto allowed = [&](std::int64_t steps) {
    return spent(accountant, noise_multiplier, target, steps) <= target.epsilon;
  };
  constexpr std::int64_t most = std::int64_t{1} << 53;  // whole numbers a double still counts
  std::int64_t low = 0, high = 1;
  while (high < most && allowed(high)) {
    low = high;
    high *= 2;
  }
  if (high == most && allowed(most)) return most;
  while (high - low > 1) {
    const std::int64_t middle = std::midpoint(low, high);
    (allowed(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace sotto
