#include "dp/accounting/rdp/rdp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/threads/parallel.h"
#include "dp/numerics/log_sum.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double max_order = 1e6;
constexpr double max_summed_order = 256;  // above it the quadrature is faster than the sum
// below it the quadrature's step would be too short
constexpr double smallest_integrated_sigma = 0.005;
constexpr double negligible_log = 45;  // terms below e^-45 of the largest one are left out

// ln(A - 1) for a whole order: A - 1 = sum_{i=2}^alpha C(alpha, i) q^i (1-q)^{alpha-i}
// (e^{(i^2-i)/(2 sigma^2)} - 1), where no term is negative.
double log_excess_by_sum(double q, double sigma, double order) {
  LogSum sum;
  double log_binomial = 0;
  for (double i = 1; i <= order; ++i) {
    log_binomial += std::log((order - i + 1) / i);
    if (i == 1) continue;
    sum.add(log_binomial + i * std::log(q) + (order - i) * std::log1p(-q) +
            log_expm1(i * (i - 1) / (2 * sigma * sigma)));
  }
  return sum.log();
}

// The trapezoidal rule for A - 1 = E[w^alpha - 1 - alpha (w - 1)], w = 1 - q + q e^L, whose
// integrand is nowhere negative, on the lattice h k. docs/appendix/proofs-accounting.md bounds the
// error.
class ExcessIntegral {
 public:
  ExcessIntegral(double q, double sigma, double order)
      : q_(q),
        sigma_(sigma),
        order_(order),
        step_(std::min(0.6 * sigma, 0.4 * sigma * sigma)),
        sum_(start()) {}

  double log() {
    constexpr double tail = 12;  // standard deviations
    const double top = std::max(order_, 2.0) + tail * sigma_;
    add(-static_cast<std::int64_t>(std::ceil(tail * sigma_ / step_)),
        static_cast<std::int64_t>(std::ceil(top / step_)));
    return sum_.log() + std::log(step_ / sigma_) - 0.5 * std::log(2 * std::numbers::pi);
  }

 private:
  // ln w(z)
  double log_ratio(double z) const {
    constexpr double overflow = 700;
    const double loss = (z - 0.5) / (sigma_ * sigma_);
    return loss > overflow ? log1p_exp(std::log(q_) + loss) : std::log1p(q_ * std::expm1(loss));
  }

  double log_density(double z) const { return -0.5 * (z / sigma_) * (z / sigma_); }

  // ln(e^{b l} - 1 - b (1 - e^{-l})) with b = alpha - 1: the integrand divided by w = e^l.
  double log_convexity(double l) const {
    const double b = order_ - 1;
    if (b * l > negligible_log) return b * l;
    if (std::abs(l) * std::max(b, 1.0) > 0.5) {
      return std::log(std::expm1(b * l) + b * std::expm1(-l));
    }
    double power = b * l, reflected = -b * l, sum = 0;  // (b l)^k / k! and b (-l)^k / k!
    for (int k = 2; k <= 16; ++k) {
      power *= b * l / k;
      reflected *= -l / k;
      sum += power + reflected;
    }
    return std::log(sum);
  }

  double log_value(double z) const {
    const double l = log_ratio(z);
    return l + log_convexity(l) + log_density(z);
  }

  // An upper bound on the log of the integrand: a convex function of z minus a square.
  double log_bound(double z) const {
    return std::max(order_ * log_ratio(z), 0.0) + std::log1p(order_) + log_density(z);
  }

  // A first value of the sum's maximum; any value of the integrand is below the largest.
  double start() const {
    return std::max({log_value(-sigma_), log_value(0.5 + sigma_), log_value(2), log_value(order_)});
  }

  // Adds lattice points first .. last - 1, except for cells on which the bound is negligible.
  void add(std::int64_t first, std::int64_t last) {
    const double a = static_cast<double>(first) * step_, b = static_cast<double>(last) * step_;
    const double sag = (b - a) * (b - a) / (8 * sigma_ * sigma_);
    if (std::max(log_bound(a), log_bound(b)) + sag < sum_.largest() - negligible_log) return;
    constexpr std::int64_t leaf = 16;
    if (last - first > leaf) {
      const std::int64_t middle = first + (last - first) / 2;
      add(first, middle);
      add(middle, last);
      return;
    }
    for (std::int64_t k = first; k < last; ++k) sum_.add(log_value(static_cast<double>(k) * step_));
  }

  double q_, sigma_, order_, step_;
  LogSum sum_;
};

// ln A = (alpha - 1) rdp
double log_moment(double q, double sigma, double order) {
  const bool whole = order == std::floor(order);
  if (whole && (order <= max_summed_order || sigma < smallest_integrated_sigma)) {
    return log1p_exp(log_excess_by_sum(q, sigma, order));
  }
  if (sigma >= smallest_integrated_sigma) {
    return log1p_exp(ExcessIntegral(q, sigma, order).log());
  }
  // ln A is convex in the order, so a chord lies above it, and so does ln A without sampling.
  const double below = std::floor(order), t = order - below;
  const double low = below == 1 ? 0 : log_moment(q, sigma, below);
  return std::min((1 - t) * low + t * log_moment(q, sigma, below + 1),
                  order * (order - 1) / (2 * sigma * sigma));
}

void check_curve(const char* op, std::span<const double> orders, std::span<const double> rdp) {
  check(!orders.empty() && orders.size() == rdp.size(), "{}: {} orders and {} divergences", op,
        orders.size(), rdp.size());
}

void check_asked(double delta, double epsilon) {
  check(delta > 0 && delta < 1, "epsilon: delta {} is not in (0, 1)", delta);
  check(epsilon >= 0 && std::isfinite(epsilon), "delta: epsilon {} is not a finite number >= 0",
        epsilon);
}

// The epsilon that a divergence proves; -infinity if the total variation is below delta.
double epsilon_at(double order, double rdp, double delta) {
  if (delta * delta + std::expm1(-rdp) > 0) return -infinity;
  return rdp + std::log1p(-1 / order) - (std::log(delta) + std::log(order)) / (order - 1);
}

// ln of the total variation distance, and ln delta.
double log_distance(double rdp) { return 0.5 * std::log(-std::expm1(-rdp)); }
double log_delta_at(double order, double rdp, double epsilon) {
  return (order - 1) * (rdp - epsilon + std::log1p(-1 / order)) - std::log(order);
}

// The index at which f(0), f(1), ... f(count - 1), which falls and then rises, is smallest.
template <class Function>
std::size_t min(std::size_t count, const Function& f) {
  std::size_t low = 0, high = count - 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (f(middle + 1) < f(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

double rdp_sampled_gaussian(double q, double sigma, double order) {
  check(q >= 0 && q <= 1, "rdp: sampling rate {} is not in [0, 1]", q);
  check(sigma >= 0, "rdp: noise multiplier {} is not >= 0", sigma);
  check(order > 1 && order <= max_order, "rdp: order {} is not in (1, {}]", order, max_order);
  if (q == 0) return 0;
  if (sigma == 0) return infinity;
  if (q == 1) return order / (2 * sigma * sigma);
  return log_moment(q, sigma, order) / (order - 1);
}

std::vector<double> rdp_curve(double q, double sigma, std::span<const double> orders) {
  std::vector<double> curve(orders.size());
  constexpr std::int64_t grain = 16;
  parallel_for(static_cast<std::int64_t>(orders.size()), grain, [&](auto begin, auto end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      curve[i] = rdp_sampled_gaussian(q, sigma, orders[i]);
    }
  });
  return curve;
}

const std::vector<double>& default_orders() {
  static const std::vector<double> orders = [] {
    struct Stretch {
      int first, last;
      double divisor;
    };
    constexpr std::array stretches = {Stretch{101, 110, 100.0}, Stretch{23, 60, 20.0},
                                      Stretch{31, 200, 10.0}, Stretch{41, 128, 2.0}};
    std::vector<double> list;
    for (const Stretch& s : stretches) {
      for (int i = s.first; i <= s.last; ++i) list.push_back(i / s.divisor);
    }
    constexpr double growth = 1.03, top = 10000;
    while (list.back() < top) list.push_back(std::min(std::ceil(list.back() * growth), top));
    return list;
  }();
  return orders;
}

RdpBound rdp_epsilon(std::span<const double> orders, std::span<const double> rdp, double delta) {
  check_asked(delta, 0);
  check_curve("epsilon", orders, rdp);
  RdpBound best{infinity, orders.front()};
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const double epsilon = epsilon_at(orders[i], rdp[i], delta);
    if (epsilon < best.value) best = {epsilon, orders[i]};
  }
  best.value = std::max(best.value, 0.0);
  return best;
}

RdpBound rdp_delta(std::span<const double> orders, std::span<const double> rdp, double epsilon) {
  check_asked(0.5, epsilon);
  check_curve("delta", orders, rdp);
  RdpBound best{0, orders.front()};  // ln 1
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const double log_delta =
        std::min(log_distance(rdp[i]), log_delta_at(orders[i], rdp[i], epsilon));
    if (log_delta < best.value) best = {log_delta, orders[i]};
  }
  best.value = std::exp(best.value);
  return best;
}

// The smallest order bounds the total variation best, because divergences grow with the order.
RdpBound rdp_epsilon(std::span<const double> orders, const RdpOfOrder& rdp, double delta) {
  check_asked(delta, 0);
  const auto at = [&](std::size_t i) { return epsilon_at(orders[i], rdp(i), delta); };
  const std::size_t best = at(0) == -infinity ? 0 : min(orders.size(), at);
  return {std::max(at(best), 0.0), orders[best]};
}

RdpBound rdp_delta(std::span<const double> orders, const RdpOfOrder& rdp, double epsilon) {
  check_asked(0.5, epsilon);
  const auto at = [&](std::size_t i) { return log_delta_at(orders[i], rdp(i), epsilon); };
  const std::size_t best = min(orders.size(), at);
  const double distance = log_distance(rdp(0)), moment = at(best);
  if (std::min(distance, 0.0) <= moment) return {std::exp(std::min(distance, 0.0)), orders.front()};
  return {std::exp(moment), orders[best]};
}

}  // namespace sotto
