#include "dp/accounting/pld/dominating_pair.h"

#include <limits>
#include <numbers>

#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double overflow = 700;  // e^700 is below the largest double

// asinh(e^a), and ln sinh(x) for x > 0, without overflow.
double asinh_exp(double a) {
  return a > overflow / 2 ? a + std::numbers::ln2 : std::asinh(std::exp(a));
}
double log_sinh(double x) {
  return x > 1 ? x + std::log1p(-std::exp(-2 * x)) - std::numbers::ln2 : std::log(std::sinh(x));
}

double gaussian_above(double z) { return 0.5 * std::erfc(z / std::numbers::sqrt2); }

}  // namespace

DominatingPair::DominatingPair(const SampledGaussian& release, double tail_mass_truncation)
    : change_(release.change),
      rate_(release.rate),
      sigma_(release.noise),
      tail_mass_truncation_(tail_mass_truncation),
      turn_(0.5 + sigma_ * sigma_ * (std::log1p(-rate_) - std::log(rate_))),
      log_norm_(-std::log(sigma_) - 0.5 * std::log(2 * std::numbers::pi)) {
  constexpr double max = 39;  // standard deviations, beyond which masses underflow
  constexpr double precision = 1e-3;
  const auto end = [&](double safe, const auto& mass) {
    return safe_root(0, safe, precision, [&](double x) { return mass(x) - tail_mass_truncation; });
  };
  highest_ = end(1 + max * sigma_, [&](double x) { return mass_above(x); });
  lowest_ = -end(max * sigma_, [&](double x) { return gaussian_above(x / sigma_); });
}

// P(x, infinity)
double DominatingPair::mass_above(double x) const {
  return rate_ * gaussian_above((x - 1) / sigma_) + (1 - rate_) * gaussian_above(x / sigma_);
}

// ln(1 - r + r e^L), L = (2x - 1) / (2 s^2); by the second form if the first would cancel.
double DominatingPair::log_ratio(double x) const {
  const double exponent = (x - 0.5) / (sigma_ * sigma_);
  if (rate_ == 1) return exponent;
  if (exponent > overflow) return std::log(rate_) + exponent;
  const double change = rate_ * std::expm1(exponent);
  return change > -0.5 ? std::log1p(change) : std::log(1 - rate_ + rate_ * std::exp(exponent));
}

LossPoint DominatingPair::at(double x) const {
  const auto density = [&](double ratio, double z) {
    return std::exp(ratio - 0.5 * z * z + log_norm_);
  };
  if (within() && x < middle) return {density(0, (x - 1) / sigma_), -log_ratio(1 - x)};
  const double ratio = log_ratio(x);
  return {density(ratio, x / sigma_),
          change_ == Adjacency::replace ? ratio - log_ratio(-x) : ratio};
}

double DominatingPair::loss(double x) const { return at(x).loss; }

double DominatingPair::without_loss() const {
  return within() ? (1 - rate_) * std::erf(middle / (std::numbers::sqrt2 * sigma_)) : 0;
}

double DominatingPair::position(double loss) const {
  const double variance = sigma_ * sigma_;
  if (within() && loss < 0) return 1 - position(-loss);
  if (change_ != Adjacency::replace) {
    if (rate_ == 1) return 0.5 + variance * loss;
    // e^L equals e^loss / r where e^L would overflow.
    const double exponent = loss - std::log(rate_);
    if (exponent > overflow) return 0.5 + variance * exponent;
    const double change = std::expm1(loss) / rate_;
    if (change > -0.5) return 0.5 + variance * std::log1p(change);
    const double ratio = (std::exp(loss) - (1 - rate_)) / rate_;  // e^L
    return ratio > 0 ? 0.5 + variance * std::log(ratio) : -infinity;
  }
  // r e^{-1/(2 s^2)} sinh(x/s^2 - loss/2) = (1 - r) sinh(loss/2)
  if (loss == 0) return 0;
  const double size =
      std::log1p(-rate_) - std::log(rate_) + 0.5 / variance + log_sinh(0.5 * std::abs(loss));
  return variance * (0.5 * loss + std::copysign(asinh_exp(size), loss));
}

// The length of a quadrature interval from x on: within it the density changes by at most e^5, and
// the loss, which has singularities at turn + i pi s^2, is resolved.
double DominatingPair::piece(double x) const {
  constexpr double log_change = 5, resolved = 1.4;
  const double variance = sigma_ * sigma_;
  const auto near = [&](double turn) {
    const double gap = x < turn ? (turn - x) / 3 : (x - turn) / 2;
    return std::max(resolved * variance, gap);
  };
  double length =
      std::min(sigma_ / 2, log_change * variance / std::max(std::abs(x), std::abs(x - 1)));
  if (within() && x < middle) return std::min({length, near(1 - turn_), middle - x});
  length = std::min(length, near(turn_));
  return change_ == Adjacency::replace ? std::min(length, near(-turn_)) : length;
}

}  // namespace sotto
