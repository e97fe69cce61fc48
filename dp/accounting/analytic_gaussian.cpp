#include "dp/accounting/analytic_gaussian.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double root_tolerance = 1e-13;

// Mills' ratio (1 - Phi(x)) / phi(x) for x >= 0; for large x by its continued fraction
//   1 / (x + 1 / (x + 2 / (x + 3 / ...))).
double mills(double x) {
  constexpr double far = 4;
  constexpr int terms = 60;
  if (x < far) {
    return std::sqrt(std::numbers::pi / 2) * std::erfc(x / std::numbers::sqrt2) *
           std::exp(0.5 * x * x);
  }
  double tail = x;
  for (int k = terms; k > 0; --k) tail = x + k / tail;
  return 1 / tail;
}

// ln delta for mu = sqrt(steps) / sigma: delta = phi(t) (M(t) - M(t + mu)), t = epsilon/mu - mu/2,
// with M Mills' ratio.
double log_delta(double mu, double epsilon) {
  if (mu == 0) return -infinity;
  if (std::isinf(mu)) return 0;
  const double t = epsilon / mu - mu / 2;
  const double log_density = -0.5 * t * t - 0.5 * std::log(2 * std::numbers::pi);
  if (t >= 0) return log_density + std::log(mills(t) - mills(t + mu));
  return std::log(0.5 * std::erfc(t / std::numbers::sqrt2) - std::exp(log_density) * mills(t + mu));
}

void check_target(const char* op, double epsilon, double delta) {
  check(epsilon >= 0 && std::isfinite(epsilon), "{}: epsilon {} is not a finite number >= 0", op,
        epsilon);
  check(delta > 0 && delta < 1, "{}: delta {} is not in (0, 1)", op, delta);
}

double separation(const char* op, double noise_multiplier, std::int64_t steps) {
  check(noise_multiplier >= 0 && std::isfinite(noise_multiplier),
        "{}: noise multiplier {} is not a finite number >= 0", op, noise_multiplier);
  check(steps >= 0, "{}: {} steps", op, steps);
  return steps == 0 ? 0 : std::sqrt(static_cast<double>(steps)) / noise_multiplier;
}

}  // namespace

double gaussian_delta(double noise_multiplier, double epsilon, std::int64_t steps) {
  const double mu = separation("gaussian_delta", noise_multiplier, steps);
  check_target("gaussian_delta", epsilon, 0.5);
  return std::exp(log_delta(mu, epsilon));
}

double gaussian_epsilon(double noise_multiplier, double delta, std::int64_t steps) {
  const double mu = separation("gaussian_epsilon", noise_multiplier, steps);
  check_target("gaussian_epsilon", 0, delta);
  if (std::isinf(mu)) return infinity;
  const auto excess = [&](double epsilon) { return log_delta(mu, epsilon) - std::log(delta); };
  if (excess(0) <= 0) return 0;
  double high = 1;
  while (excess(high) > 0) high *= 2;
  return safe_root(0, high, root_tolerance, excess);
}

double gaussian_noise_multiplier(double epsilon, double delta, std::int64_t steps) {
  check_target("gaussian_noise_multiplier", epsilon, delta);
  check(steps >= 0, "gaussian_noise_multiplier: {} steps", steps);
  if (steps == 0) return 0;
  const auto excess = [&](double sigma) { return log_delta(1 / sigma, epsilon) - std::log(delta); };
  double low = 1, high = 1;
  while (excess(high) > 0) high *= 2;
  while (excess(low) <= 0) low /= 2;
  return safe_root(low, high, root_tolerance, excess) * std::sqrt(static_cast<double>(steps));
}

}  // namespace sotto
