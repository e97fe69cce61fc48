#include "dp/numerics/binomial_tail.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"

namespace sotto {

namespace {

// An upper bound on ln P[Binomial(n, q) = k], for k above n q and at most n.
double log_probability(double n, double q, double k) {
  if (k == n) return n * std::log(q) * (1 - 1e-15);
  const double mean = n * q, rest = n - k;
  const double more = k * std::log1p((k - mean) / mean);
  const double less = rest * std::log1p((mean - k) / (n - mean));
  // Twice the rounding error of k, the mean and the two logarithms.
  const double rounding = 16 * 0x1p-53 * (k + mean + more - less);
  return 0.5 * std::log(n / (2 * std::numbers::pi * k * rest)) - (more + less) + rounding +
         1 / (12 * n) - 1 / (12 * k + 1) - 1 / (12 * rest + 1);
}

// An upper bound on P[X >= k] / P[X = k] for a binomial X and k above its mean. The ratio of
// successive terms is below 1 and decreases, so the terms after any one are below a geometric
// series.
double sum_from(double n, double q, double k) {
  constexpr int max_terms = 1 << 20;
  constexpr double negligible = 1e-9, rounding = 1e-5;
  double sum = 0, term = 1, beyond = 0;
  for (int i = 0; i < max_terms && k <= n; ++i, ++k) {
    sum += term;
    const double ratio = (n - k) / (k + 1) * (q / (1 - q));
    beyond = term * ratio / (1 - ratio);
    if (beyond < negligible * sum) break;
    term *= ratio;
  }
  return (sum + beyond) * (1 + rounding);
}

}  // namespace

double binomial_tail(std::int64_t n, double rate, std::int64_t max) {
  check(n >= 1 && n <= std::int64_t{1} << 53 && max >= 0 && rate > 0 && rate <= 1,
        "binomial_tail: more than {} of {} units at rate {}", max, n, rate);
  if (max >= n) return 0;
  const auto units = static_cast<double>(n), first = static_cast<double>(max + 1);
  if (first <= units * rate) return 1;
  const double tail = std::exp(log_probability(units, rate, first)) * sum_from(units, rate, first);
  return std::clamp(tail, std::numeric_limits<double>::min(), 1.0);
}

}  // namespace sotto
