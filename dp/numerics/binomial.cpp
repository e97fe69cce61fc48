#include "dp/numerics/binomial.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double negligible = 1e-18;

double log_mass(double n, double k, double p) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) +
         (n - k) * std::log1p(-p);
}

// sum_{j >= k} P[X = j] / P[X = k] for k at the mode or above, where terms decrease.
double upward(double n, double k, double p) {
  double term = 1, sum = 1;
  for (double j = k; j < n && term > negligible * sum; ++j) {
    term *= (n - j) / (j + 1) * p / (1 - p);
    sum += term;
  }
  return sum;
}

}  // namespace

BinomialTail binomial_at_least(std::int64_t n, std::int64_t k, double p) {
  check(k >= 0 && k <= n, "binomial_at_least: {} of {}", k, n);
  check(p >= 0 && p <= 1, "binomial_at_least: probability {} is not in [0, 1]", p);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (p == 0) return k == 0 ? BinomialTail{1, 1} : BinomialTail{0, infinity};
  if (p == 1) return {1, k == n ? 1 : infinity};
  const auto trials = static_cast<double>(n), min = static_cast<double>(k);
  const double mass = std::exp(log_mass(trials, min, p));
  if (min > trials * p) {
    const double ratio = upward(trials, min, p);
    return {mass * ratio, ratio};
  }
  // One minus the lower tail, which is the upper tail of the number of failures.
  const double below =
      k == 0 ? 0 : std::exp(log_mass(trials, min - 1, p)) * upward(trials, trials - min + 1, 1 - p);
  return {1 - below, (1 - below) / mass};
}

double proportion_at_most(std::int64_t n, std::int64_t k, double confidence) {
  constexpr double tolerance = 1e-12;
  check(n >= 1 && k >= 0 && k <= n, "proportion_at_most: {} of {}", k, n);
  check(confidence > 0.5 && confidence < 1, "proportion_at_most: confidence {} is not in (1/2, 1)",
        confidence);
  if (k == n) return 1;
  // At most k successes are at least n - k failures.
  const auto excess = [&](double p) {
    return binomial_at_least(n, n - k, 1 - p).probability - (1 - confidence);
  };
  return safe_root(static_cast<double>(k) / static_cast<double>(n), 1.0, tolerance, excess);
}

}  // namespace sotto
