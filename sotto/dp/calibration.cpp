#include "sotto/dp/calibration.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "sotto/core/error.h"
#include "sotto/dp/search.h"

namespace sotto {

namespace {

void check_target(const char* op, const PrivacyTarget& target) {
  check(target.epsilon > 0 && std::isfinite(target.epsilon),
        "{}: epsilon {} is not a finite number > 0", op, target.epsilon);
  check(target.delta > 0 && target.delta < 1, "{}: delta {} is not in (0, 1)", op, target.delta);
  check(target.sampling_rate > 0 && target.sampling_rate <= 1,
        "{}: sampling rate {} is not in (0, 1]", op, target.sampling_rate);
  check(target.steps >= 0, "{}: {} steps", op, target.steps);
}

// Epsilon of `steps` releases with the divergences `curve` each.
double epsilon_after(std::int64_t steps, std::span<const double> orders, std::vector<double> curve,
                     double delta) {
  for (double& rdp : curve) rdp *= static_cast<double>(steps);
  return rdp_epsilon(orders, curve, delta).value;
}

}  // namespace

double calibrate_noise_multiplier(const PrivacyTarget& target, std::span<const double> orders) {
  check_target("calibrate_noise_multiplier", target);
  if (target.steps == 0) return 0;
  // Whoever adds the steps up one by one gets another rounding, far below this.
  constexpr double margin = 1e-9, tolerance = 1e-8, largest = 1e9;
  const auto excess = [&](double sigma) {
    const auto curve = rdp_curve(target.sampling_rate, sigma, orders);
    return margin +
           std::log(epsilon_after(target.steps, orders, curve, target.delta) / target.epsilon);
  };
  double low = 1, high = 1;
  while (excess(high) > 0) {
    low = high;
    high *= 2;
    check(high < largest,
          "calibrate_noise_multiplier: epsilon {} at delta {} is out of reach of orders up to {}",
          target.epsilon, target.delta, orders.back());
  }
  while (low == high || excess(low) <= 0) {
    high = low;
    low /= 2;
  }
  return safe_root(low, high, tolerance, excess);
}

std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       std::span<const double> orders) {
  check_target("max_steps", target);
  check(noise_multiplier >= 0 && std::isfinite(noise_multiplier),
        "max_steps: noise multiplier {} is not a finite number >= 0", noise_multiplier);
  const auto curve = rdp_curve(target.sampling_rate, noise_multiplier, orders);
  const auto allowed = [&](std::int64_t steps) {
    return epsilon_after(steps, orders, curve, target.delta) <= target.epsilon;
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
