#include "dp/accounting/rdp/balls_and_bins.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

#include "core/error.h"
#include "dp/accounting/rdp/rdp.h"
#include "dp/numerics/log_sum.h"

namespace sotto {

namespace {

constexpr double rounding = 1e-10;  // relative, above the rounding error of any sum here
constexpr double overflow = 700;    // e^700 is below the largest double

// The moments ln E[M^k], k = 0, 1, ..., of the mean M of `terms` independent factors L with mean 1.
struct Moments {
  double terms = 0;
  std::vector<double> logs;
};

// The moments of the mean of the terms of both:
//   E[M^n] - 1 = sum_k Binomial(k; n, p) (E[M_1^k] E[M_2^{n-k}] - 1),
// where p is the first one's fraction of all terms. No term is negative.
Moments join(const Moments& one, const Moments& two) {
  Moments both{one.terms + two.terms, std::vector<double>(one.logs.size(), 0.0)};
  const double log_p = std::log(one.terms / both.terms), log_r = std::log(two.terms / both.terms);
  std::vector<double> log_factorials = {0};
  for (std::size_t n = 1; n < both.logs.size(); ++n) {
    log_factorials.push_back(log_factorials.back() + std::log(static_cast<double>(n)));
    const bool large = std::max(one.logs[n], two.logs[n]) > overflow;
    LogSum logs;
    double sum = 0;
    for (std::size_t k = 0; k <= n; ++k) {
      const double weight = log_factorials[n] - log_factorials[k] - log_factorials[n - k] +
                            static_cast<double>(k) * log_p + static_cast<double>(n - k) * log_r;
      const double product = one.logs[k] + two.logs[n - k];
      if (large) {
        logs.add(weight + product);
      } else {
        sum += std::exp(weight) * std::expm1(product);
      }
    }
    both.logs[n] = large ? logs.log() : std::log1p(sum);
  }
  return both;
}

// ln E[M^k] for k up to `max`: E[L^k] = e^{k (k-1) / (2 sigma^2)}, joined by doubling; above k =
// `exact` by E[M^{k+1}] <= E[M^k] (1 + (e^{k / sigma^2} - 1) / batches).
std::vector<double> log_moments(double batches, double sigma, std::size_t max) {
  constexpr std::size_t exact = 256;
  const double precision = 1 / (sigma * sigma);
  Moments power{1, {}}, all{0, {}};
  for (std::size_t k = 0; k <= std::min(max, exact); ++k) {
    const auto order = static_cast<double>(k);
    power.logs.push_back(0.5 * order * (order - 1) * precision);
  }
  for (double left = batches; left > 0;) {
    const bool odd = std::fmod(left, 2) == 1;
    if (odd) all = all.terms == 0 ? power : join(all, power);
    left = (left - (odd ? 1 : 0)) / 2;
    if (left > 0) power = join(power, power);
  }
  std::vector<double> logs = std::move(all.logs);
  for (double& log : logs) log *= 1 + rounding;
  while (logs.size() <= max) {
    const double rise = log_expm1(static_cast<double>(logs.size() - 1) * precision);
    logs.push_back(logs.back() + (1 + rounding) * log1p_exp(rise - std::log(batches)));
  }
  return logs;
}

// E[M^{-b}] by the Laplace transform of M:
//   E[M^{-b}] - 1 = 1/Gamma(b) int e^{b v} (E[e^{-y L / t}]^t - e^{-y}) dv,   y = e^v,
// where no value is negative either.
class NegativeMoments {
 public:
  NegativeMoments(double batches, double sigma) : batches_(batches) {
    constexpr double lowest = 38, highest = 12;  // in standard deviations
    const double s = std::min(sigma, 5.0), step = 9.4 * s / (40 + 1.1 * s * s);
    const double norm = std::log(step) - 0.5 * std::log(2 * std::numbers::pi);
    for (double z = -lowest; z < 2 / sigma + highest; z += step) {
      const double log_factor = (z - 0.5 / sigma) / sigma;
      points_.push_back({std::exp(log_factor), std::expm1(log_factor), norm - 0.5 * z * z});
    }
  }

  // The largest b for log(): its integral is concentrated b / (t sigma) standard deviations below
  // 0.
  static double max(double batches, double sigma) { return 25 * batches * sigma; }

  // ln E[M^{-b}] for b > 0.
  double log(double b) {
    constexpr double quadrature = 1e-9;  // above the quadrature's errors
    constexpr double max_width = 0.2, narrow = 0.75, parts = 4, negligible = 45;
    const double ideal = std::min(max_width, narrow / std::sqrt(b + 2));
    // Steps whose ratios are powers of one number share their points.
    const double step =
        max_width * std::exp2(std::floor(parts * std::log2(ideal / max_width)) / parts);
    const double start = std::round(std::log(b + 1) / step);
    LogSum sum;
    for (const double direction : {1.0, -1.0}) {
      double last = -std::numeric_limits<double>::infinity();
      for (double k = direction > 0 ? start : start - 1;; k += direction) {
        const double v = k * step, value = b * v + log_difference(v);
        sum.add(value);
        if (value < last && value < sum.largest() - negligible) break;
        last = value;
      }
    }
    return (1 + quadrature) * log1p_exp(sum.log() + std::log(step) - std::lgamma(b));
  }

 private:
  struct Node {
    double factor, excess, log_weight;  // L, L - 1
  };

  // ln(E[e^{-y L / t}]^t - e^{-y}) for y = e^v.
  double log_difference(double v) {
    const auto [place, is_new] = differences_.try_emplace(v);
    if (is_new) {
      const double y = std::exp(v), w = y / batches_;
      const bool large = -w * points_.front().excess > overflow;
      const double log_power = large ? batches_ * log_transform(w) : 0;
      const double excess = large ? log_power + y : batches_ * log_convexity(w);
      place->second = large        ? log_power + std::log1p(-std::exp(-excess))
                      : excess > 1 ? excess - y + std::log1p(-std::exp(-excess))
                                   : log_expm1(excess) - y;
    }
    return place->second;
  }

  // ln E[e^{-w L}]
  double log_transform(double w) const {
    LogSum sum;
    for (const Node& point : points_) sum.add(point.log_weight - w * point.factor);
    return sum.log();
  }

  // ln E[e^{-w (L - 1)}] computed without cancellation, unless w is large.
  double log_convexity(double w) const {
    double sum = 0;
    for (const Node& point : points_) {
      sum += std::exp(point.log_weight) * convexity(w * point.excess);
    }
    return std::log1p(sum);
  }

  // e^{-x} - 1 + x
  static double convexity(double x) {
    constexpr double small = 0.02;
    if (std::abs(x) > small) return std::expm1(-x) + x;
    return x * x * (1.0 / 2 - x * (1.0 / 6 - x * (1.0 / 24 - x * (1.0 / 120 - x / 720))));
  }

  double batches_;
  std::vector<Node> points_;  // of a normal variable
  std::map<double, double> differences_;
};

}  // namespace

std::vector<double> rdp_curve_balls_and_bins(std::int64_t batches, double sigma,
                                             std::span<const double> orders) {
  check(batches >= 1, "rdp: an epoch of {} batches", batches);
  std::vector<double> curve = rdp_curve(1, sigma, orders);
  constexpr double min = 1e-50;  // below this noise moments overflow
  if (batches == 1 || sigma < min || orders.empty()) return curve;
  const auto t = static_cast<double>(batches);
  const auto max = static_cast<std::size_t>(std::ceil(*std::ranges::max_element(orders)));
  const std::vector<double> logs = log_moments(t, sigma, max);
  std::optional<NegativeMoments> negative;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const double b = orders[i] - 1, below = std::floor(orders[i]);
    const auto whole = static_cast<std::size_t>(below);
    const double part = orders[i] - below;
    double moment = logs[whole];
    if (part > 0) moment += part * (logs[whole + 1] - moment);
    // The arithmetic mean M is at least the geometric mean, whose moments are known. Their bound
    // suffices if it is below the other direction's.
    const double geometric = 0.5 * b * (b / t + 1) / (sigma * sigma);
    if (geometric > moment) {
      if (!negative) negative.emplace(t, sigma);
      const bool known = b <= NegativeMoments::max(t, sigma);
      moment = std::max(moment, known ? std::min(geometric, negative->log(b)) : geometric);
    }
    curve[i] = std::min(curve[i], moment / b);
  }
  return curve;
}

double rdp_balls_and_bins_added(std::int64_t batches, double sigma, double order) {
  constexpr double min_sigma = 0.1;  // below it there would be too many points
  check(batches >= 1, "rdp: an epoch of {} batches", batches);
  check(sigma >= min_sigma, "rdp: noise multiplier {} is below {}", sigma, min_sigma);
  rdp_sampled_gaussian(1, sigma, order);  // throws for an order out of range
  const auto t = static_cast<double>(batches);
  check(order <= NegativeMoments::max(t, sigma), "rdp: order {} of {} batches and noise {}", order,
        batches, sigma);
  return NegativeMoments(t, sigma).log(order - 1) / (order - 1);
}

}  // namespace sotto
