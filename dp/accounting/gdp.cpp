#include "dp/accounting/gdp.h"

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "dp/accounting/analytic_gaussian.h"

namespace sotto {

namespace {

void check_steps(const char* op, double sampling_rate, double noise_multiplier,
                 std::int64_t steps) {
  check(sampling_rate >= 0 && sampling_rate <= 1, "{}: sampling rate {} is not in [0, 1]", op,
        sampling_rate);
  check(noise_multiplier > 0, "{}: noise multiplier {} is not > 0", op, noise_multiplier);
  check(steps >= 0, "{}: {} steps", op, steps);
}

double noise_of(const char* op, double mu) {
  check(mu >= 0, "{}: mu {} is not >= 0", op, mu);
  return 1 / mu;
}

}  // namespace

double gdp_poisson(double sampling_rate, double noise_multiplier, std::int64_t steps) {
  check_steps("gdp_poisson", sampling_rate, noise_multiplier, steps);
  if (sampling_rate == 0 || steps == 0) return 0;
  const double variance = std::expm1(1 / noise_multiplier / noise_multiplier);
  return sampling_rate * std::sqrt(static_cast<double>(steps)) * std::sqrt(variance);
}

double gdp_fixed_size(double sampling_rate, double noise_multiplier, std::int64_t steps) {
  check_steps("gdp_fixed_size", sampling_rate, noise_multiplier, steps);
  if (sampling_rate == 0 || steps == 0) return 0;
  const double inverse = 1 / noise_multiplier;
  // e^{u^2} Phi(1.5 u) + 3 Phi(-0.5 u) - 2 with Phi = (1 + erf) / 2, so that 1/2 + 3/2 - 2 cancels.
  const double growth = std::expm1(inverse * inverse);
  const double wide = std::erf(1.5 * inverse / std::numbers::sqrt2);
  const double narrow = std::erf(0.5 * inverse / std::numbers::sqrt2);
  const double variance = 0.5 * (growth * (1 + wide) + wide - 3 * narrow);
  return sampling_rate * std::sqrt(2 * static_cast<double>(steps)) * std::sqrt(variance);
}

double gdp_epsilon(double mu, double delta) {
  const double noise = noise_of("gdp_epsilon", mu);
  return mu == 0 ? gaussian_epsilon(1, delta, 0) : gaussian_epsilon(noise, delta);
}

double gdp_delta(double mu, double epsilon) {
  const double noise = noise_of("gdp_delta", mu);
  return mu == 0 ? gaussian_delta(1, epsilon, 0) : gaussian_delta(noise, epsilon);
}

}  // namespace sotto
