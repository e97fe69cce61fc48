#include "dp/noise/correlated/strategy_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace sotto {

namespace {

// Rounds to the grid that CorrelatedNoiseStream computes with.
double to_grid(double x) { return std::ldexp(std::round(std::ldexp(x, 40)), -40); }

void check_and_round(TreeFactor& /*factor*/) {}

void check_and_round(BandedToeplitz& factor) {
  std::vector<double>& c = factor.coefficients;
  check(!c.empty() && c[0] == 1, "noise strategy: the first coefficient is not 1");
  for (double& value : c) {
    check(value >= 0 && value <= 1, "noise strategy: a coefficient of {}", value);
    value = to_grid(value);
  }
}

void check_and_round(BufferedToeplitz& factor) {
  check(factor.decays.size() == factor.scales.size(), "noise strategy: {} decays, {} scales",
        factor.decays.size(), factor.scales.size());
  double sum = 0;
  for (std::size_t i = 0; i < factor.decays.size(); ++i) {
    double& decay = factor.decays[i];
    double& scale = factor.scales[i];
    check(decay >= 0 && decay < 1, "noise strategy: a decay of {}", decay);
    check(scale >= 0, "noise strategy: a scale of {}", scale);
    decay = to_grid(decay);
    sum += scale = to_grid(scale);
  }
  check(sum <= 1, "noise strategy: scales with a sum of {}", sum);
}

// The index of the lowest bit that is set.
int level_of(std::int64_t node) { return std::countr_zero(static_cast<std::uint64_t>(node)); }

std::vector<double> first_column(const TreeFactor& /*factor*/, std::int64_t steps) {
  std::vector<double> column(static_cast<std::size_t>(steps), 0.0);
  for (std::int64_t end = 1; end <= steps; end *= 2) column[static_cast<std::size_t>(end - 1)] = 1;
  return column;
}

std::vector<double> first_column(const BandedToeplitz& factor, std::int64_t steps) {
  std::vector<double> column = factor.coefficients;
  column.resize(static_cast<std::size_t>(steps), 0.0);
  return column;
}

std::vector<double> first_column(const BufferedToeplitz& factor, std::int64_t steps) {
  std::vector<double> column{1};
  std::vector<double> terms = factor.scales;
  for (std::int64_t t = 1; t < steps; ++t) {
    column.push_back(std::accumulate(terms.begin(), terms.end(), 0.0));
    for (std::size_t i = 0; i < terms.size(); ++i) terms[i] *= factor.decays[i];
  }
  return column;
}

// Replaces z by C^-1 z.
void solve_in_place(const TreeFactor& /*factor*/, std::vector<double>& z) {
  std::vector<double> nodes(64, 0.0);  // by level
  for (std::int64_t t = 0; t < std::ssize(z); ++t) {
    const int level = level_of(t + 1);
    double& value = z[static_cast<std::size_t>(t)];
    nodes[static_cast<std::size_t>(level)] = value;
    for (int below = 0; below < level; ++below) value -= nodes[static_cast<std::size_t>(below)];
  }
}

void solve_in_place(const BandedToeplitz& factor, std::vector<double>& z) {
  const std::vector<double>& c = factor.coefficients;
  for (std::size_t t = 1; t < z.size(); ++t) {
    for (std::size_t j = 1; j < c.size() && j <= t; ++j) z[t] -= c[j] * z[t - j];
  }
}

void solve_in_place(const BufferedToeplitz& factor, std::vector<double>& z) {
  std::vector<double> buffers(factor.decays.size(), 0.0);
  for (double& value : z) {
    value -= std::inner_product(buffers.begin(), buffers.end(), factor.scales.begin(), 0.0);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i] = factor.decays[i] * buffers[i] + value;
    }
  }
}

// The running sums of squares.
std::vector<double> squared_norms(const std::vector<double>& values) {
  std::vector<double> sums;
  double sum = 0;
  for (const double v : values) sums.push_back(sum += v * v);
  return sums;
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

StrategyMatrix::StrategyMatrix(StrategyFactor factor, std::int64_t steps)
    : factor_(std::move(factor)), steps_(steps) {
  check(steps >= 1, "noise strategy: {} steps", steps);
  std::visit([](auto& kind) { check_and_round(kind); }, factor_);
  column_ = std::visit([&](const auto& kind) { return first_column(kind, steps); }, factor_);
  if (std::holds_alternative<TreeFactor>(factor_)) {
    for (std::int64_t t = 1; t <= steps; ++t) noise_variances_.push_back(1 + level_of(t));
  } else {
    std::vector<double> impulse(static_cast<std::size_t>(steps), 0.0);
    impulse[0] = 1;
    noise_variances_ = squared_norms(solve(std::move(impulse)));
  }
}

std::int64_t StrategyMatrix::bands() const {
  const auto* banded = std::get_if<BandedToeplitz>(&factor_);
  return banded != nullptr ? std::min(std::ssize(banded->coefficients), steps_) : steps_;
}

double StrategyMatrix::entry(std::int64_t row, std::int64_t column) const {
  check(row >= 0 && row < steps_ && column >= 0 && column < steps_,
        "noise strategy: entry ({}, {}) of {} steps", row, column, steps_);
  if (column > row) return 0;
  if (!std::holds_alternative<TreeFactor>(factor_)) {
    return column_[static_cast<std::size_t>(row - column)];
  }
  return row - column < std::int64_t{1} << level_of(row + 1) ? 1 : 0;
}

// At each level, `nodes` nodes lie within the steps, with at most `in_one` of the record's steps in
// each; over all nodes the sum is at most the number of the record's steps.
double StrategyMatrix::tree_sensitivity(Participation participation) const {
  double square = 0;
  for (std::int64_t length = 1; length <= steps_; length *= 2) {
    const std::int64_t nodes = (steps_ / length + 1) / 2;
    const std::int64_t in_one = std::min(participation.max_participations,
                                         divided_up(length, participation.min_separation));
    const double in_all = std::min(static_cast<double>(participation.max_participations),
                                   static_cast<double>(nodes) * static_cast<double>(in_one));
    square += static_cast<double>(in_one) * in_all;
  }
  return std::sqrt(square);
}

double StrategyMatrix::sensitivity(Participation participation) const {
  check(participation.min_separation >= 1 && participation.max_participations >= 1,
        "noise strategy: a separation of {} and at most {} steps", participation.min_separation,
        participation.max_participations);
  participation.max_participations =
      std::min(participation.max_participations, divided_up(steps_, participation.min_separation));
  if (std::holds_alternative<TreeFactor>(factor_)) return tree_sensitivity(participation);
  std::vector<double> c = column_;
  if (bands() > participation.min_separation) {
    for (std::size_t t = c.size() - 1; t > 0; --t) c[t - 1] = std::max(c[t - 1], c[t]);
  }
  // sums[t] = c[t] + c[t - b] + ..., max_participations terms: row t of the sum of the columns 0,
  // b, 2b, ...
  std::vector<double> sums = c;
  double square = 0;
  const std::int64_t apart = participation.min_separation;
  for (std::int64_t t = 0; t < steps_; ++t) {
    double& sum = sums[static_cast<std::size_t>(t)];
    if (t >= apart) sum += sums[static_cast<std::size_t>(t - apart)];
    if (t / apart >= participation.max_participations) {
      sum -= c[static_cast<std::size_t>(t - participation.max_participations * apart)];
    }
    square += sum * sum;
  }
  return std::sqrt(square);
}

std::vector<double> StrategyMatrix::solve(std::vector<double> z) const {
  check(std::ssize(z) == steps_, "noise strategy: {} numbers for {} steps", z.size(), steps_);
  std::visit([&](const auto& kind) { solve_in_place(kind, z); }, factor_);
  return z;
}

double StrategyMatrix::noise_variance(std::int64_t step) const {
  check(step >= 0 && step < steps_, "noise strategy: step {} of {}", step, steps_);
  return noise_variances_[static_cast<std::size_t>(step)];
}

std::vector<double> StrategyMatrix::prefix_variances() const {
  if (!std::holds_alternative<TreeFactor>(factor_)) {
    return squared_norms(solve(std::vector<double>(static_cast<std::size_t>(steps_), 1.0)));
  }
  std::vector<double> variances;
  for (std::int64_t t = 1; t <= steps_; ++t) {
    variances.push_back(std::popcount(static_cast<std::uint64_t>(t)));
  }
  return variances;
}

BandedToeplitz square_root_factor(std::int64_t bands) {
  check(bands >= 1, "square root factor: {} bands", bands);
  BandedToeplitz factor{{1}};
  for (double j = 1; j < static_cast<double>(bands); ++j) {
    factor.coefficients.push_back(factor.coefficients.back() * (2 * j - 1) / (2 * j));
  }
  return factor;
}

double squared_error(const StrategyMatrix& strategy, Participation participation,
                     PrefixError error) {
  const std::vector<double> variances = strategy.prefix_variances();
  const double sensitivity = strategy.sensitivity(participation);
  const double variance =
      error == PrefixError::max
          ? *std::max_element(variances.begin(), variances.end())
          : std::accumulate(variances.begin(), variances.end(), 0.0) / std::ssize(variances);
  return variance * sensitivity * sensitivity;
}

}  // namespace sotto
