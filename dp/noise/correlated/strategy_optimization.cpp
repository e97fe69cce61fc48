#include "dp/noise/correlated/strategy_optimization.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "autograd/adjoint.h"
#include "core/error.h"
#include "dp/numerics/bfgs.h"

namespace sotto {

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// The weight of each squared entry of the first column of A C^-1 in the error.
std::vector<double> row_weights(const ErrorObjective& goal) {
  check(goal.steps >= 1 && goal.participation.min_separation >= 1 &&
            goal.participation.max_participations >= 1,
        "noise search: {} steps, a separation of {}, at most {} steps of a record", goal.steps,
        goal.participation.min_separation, goal.participation.max_participations);
  std::vector<double> weights;
  const auto steps = static_cast<double>(goal.steps);
  for (double t = 0; t < steps; ++t) {
    weights.push_back(goal.error == PrefixError::max ? 1 : (steps - t) / steps);
  }
  return weights;
}

// The squared sensitivity of a non-increasing Toeplitz factor, and its derivatives by the first
// column: sums[t] = c[t] + c[t - b] + ..., max_participations terms, and value = |sums|^2.
ValueAndGradient squared_sensitivity(const std::vector<double>& c, const Participation& record) {
  const std::int64_t steps = std::ssize(c), apart = record.min_separation;
  const std::int64_t within =
      record.max_participations <= steps / apart ? record.max_participations * apart : steps;
  ValueAndGradient y{0, c};
  std::vector<double>& sums = y.gradient;
  for (std::int64_t t = 0; t < steps; ++t) {
    if (t >= apart) sums[index(t)] += sums[index(t - apart)];
    if (t >= within) sums[index(t)] -= c[index(t - within)];
    y.value += sums[index(t)] * sums[index(t)];
  }
  std::vector<double> twice = sums;
  for (double& v : twice) v *= 2;
  for (std::int64_t t = steps - 1; t >= 0; --t) {
    double& slope = sums[index(t)] = twice[index(t)];
    if (t + apart < steps) slope += sums[index(t + apart)];
    if (t + within < steps) slope -= twice[index(t + within)];
  }
  return y;
}

// The logarithm of a product of two functions of the same variables, and its derivatives.
ValueAndGradient log_product(const ValueAndGradient& a, const ValueAndGradient& b) {
  ValueAndGradient y{std::log(a.value) + std::log(b.value), a.gradient};
  for (std::size_t i = 0; i < y.gradient.size(); ++i) {
    y.gradient[i] = a.gradient[i] / a.value + b.gradient[i] / b.value;
  }
  return y;
}

// sum_t weights[t] b_t^2 for b = A C^-1, with derivatives by the coefficients of C.
ValueAndGradient banded_error(const std::vector<double>& c, const std::vector<double>& weights) {
  const std::size_t steps = weights.size();
  std::vector<double> b(steps, 1.0), adjoint(steps);
  ValueAndGradient y{0, std::vector<double>(c.size(), 0.0)};
  for (std::size_t t = 0; t < steps; ++t) {
    for (std::size_t j = 1; j < std::min(c.size(), t + 1); ++j) b[t] -= c[j] * b[t - j];
    y.value += weights[t] * b[t] * b[t];
  }
  for (std::size_t t = steps; t-- > 0;) {
    adjoint[t] = 2 * weights[t] * b[t];
    for (std::size_t j = 1; j < std::min(c.size(), steps - t); ++j) {
      adjoint[t] -= c[j] * adjoint[t + j];
      y.gradient[j] -= adjoint[t + j] * b[t];
    }
  }
  return y;
}

// Coefficients are products of ratios in (0, 1), each the logistic function of a variable.
std::vector<double> coefficients_at(const std::vector<double>& x) {
  std::vector<double> c{1};
  for (const double v : x) c.push_back(c.back() / (1 + std::exp(-v)));
  return c;
}

// The logarithm of the squared error at those coefficients.
ValueAndGradient banded_objective(const ErrorObjective& goal, const std::vector<double>& weights,
                                  const std::vector<double>& x) {
  const std::vector<double> c = coefficients_at(x);
  std::vector<double> column = c;
  column.resize(index(goal.steps), 0.0);
  ValueAndGradient norm = squared_sensitivity(column, goal.participation);
  norm.gradient.resize(c.size());
  const ValueAndGradient by_c = log_product(norm, banded_error(c, weights));
  ValueAndGradient y{by_c.value, std::vector<double>(x.size())};
  double by_scale = 0;  // derivative by a common scale of all coefficients from j on
  for (std::size_t j = x.size(); j > 0; --j) {
    by_scale += c[j] * by_c.gradient[j];
    y.gradient[j - 1] = by_scale / (1 + std::exp(x[j - 1]));
  }
  return y;
}

// Derivatives by a buffered factor: the decay of buffer i is variable 2 i, its scale variable 2 i +
// 1.

// banded_error for buffers: b_t = 1 - sum_i scales[i] s_i, then s_i becomes decays[i] s_i + b_t.
ValueAndGradient buffered_error(const BufferedToeplitz& factor,
                                const std::vector<double>& weights) {
  const std::size_t buffers = factor.decays.size();
  std::vector<double> states;  // s_i before step t at t buffers + i
  std::vector<double> b, state(buffers, 0.0), adjoint(buffers, 0.0);
  ValueAndGradient y{0, std::vector<double>(2 * buffers, 0.0)};
  for (const double weight : weights) {
    states.insert(states.end(), state.begin(), state.end());
    b.push_back(1 - std::inner_product(state.begin(), state.end(), factor.scales.begin(), 0.0));
    for (std::size_t i = 0; i < buffers; ++i) state[i] = factor.decays[i] * state[i] + b.back();
    y.value += weight * b.back() * b.back();
  }
  for (std::size_t t = b.size(); t-- > 0;) {
    const double by_b = std::accumulate(adjoint.begin(), adjoint.end(), 2 * weights[t] * b[t]);
    for (std::size_t i = 0; i < buffers; ++i) {
      y.gradient[2 * i] += adjoint[i] * states[t * buffers + i];
      y.gradient[2 * i + 1] -= by_b * states[t * buffers + i];
      adjoint[i] = factor.decays[i] * adjoint[i] - factor.scales[i] * by_b;
    }
  }
  return y;
}

// Powers of decays below this count as 0: denormal numbers make arithmetic slow.
constexpr double min_power = 0x1p-500;

ValueAndGradient buffered_sensitivity(const BufferedToeplitz& factor, const ErrorObjective& goal) {
  const std::size_t buffers = factor.decays.size();
  std::vector<double> column(index(goal.steps), 0.0);
  column[0] = 1;
  for (std::size_t i = 0; i < buffers; ++i) {
    double term = factor.scales[i];
    for (std::size_t t = 1; t < column.size() && term > min_power; ++t) {
      column[t] += term;
      term *= factor.decays[i];
    }
  }
  const ValueAndGradient by_column = squared_sensitivity(column, goal.participation);
  ValueAndGradient y{by_column.value, std::vector<double>(2 * buffers, 0.0)};
  for (std::size_t i = 0; i < buffers; ++i) {
    double power = 1, slope = 0;  // decays[i]^(t-1) and its derivative
    for (std::size_t t = 1; t < column.size() && power > min_power; ++t) {
      y.gradient[2 * i] += by_column.gradient[t] * factor.scales[i] * slope;
      y.gradient[2 * i + 1] += by_column.gradient[t] * power;
      slope = factor.decays[i] * slope + power;
      power *= factor.decays[i];
    }
  }
  return y;
}

// Buffer i has the decay exp(-e^x[2i]), or the largest possible, and the scale e^x[2i+1].
BufferedToeplitz buffers_at(const std::vector<double>& x) {
  constexpr double max_decay = 1 - 0x1p-40;
  BufferedToeplitz factor;
  for (std::size_t i = 0; i < x.size(); i += 2) {
    factor.decays.push_back(std::min(std::exp(-std::exp(x[i])), max_decay));
    factor.scales.push_back(std::exp(x[i + 1]));
  }
  return factor;
}

ValueAndGradient buffered_objective(const ErrorObjective& goal, const std::vector<double>& weights,
                                    const std::vector<double>& x) {
  const BufferedToeplitz factor = buffers_at(x);
  ValueAndGradient y =
      log_product(buffered_sensitivity(factor, goal), buffered_error(factor, weights));
  for (std::size_t i = 0; i < factor.decays.size(); ++i) {
    y.gradient[2 * i] *= -std::exp(x[2 * i]) * factor.decays[i];
    y.gradient[2 * i + 1] *= factor.scales[i];
  }
  return y;
}

// Start values. The square root's coefficients are about t^-1/2 / sqrt(pi), the integral of e^(v/2
// - t e^v) / pi over v; the trapezoidal rule from 1 / longest to 1 gives the buffers.
std::vector<double> start_of_buffers(double longest, int buffers) {
  const double width = std::log(longest + 1) / buffers;
  std::vector<double> x;
  for (int i = 0; i < buffers; ++i) {
    const double v = -width * (i + 0.5);
    x.push_back(v);
    x.push_back(v / 2 - std::exp(v) + std::log(width / std::numbers::pi));
  }
  return x;
}

}  // namespace

StrategyMatrix optimize_banded_toeplitz(const ErrorObjective& goal, std::int64_t bands) {
  check(bands >= 1 && bands <= goal.steps, "optimize_banded_toeplitz: {} bands of {} steps", bands,
        goal.steps);
  const std::vector<double> weights = row_weights(goal);
  std::vector<double> start;  // the square root's ratios, (2j - 1) / 2j
  for (double j = 1; j < static_cast<double>(bands); ++j) start.push_back(std::log(2 * j - 1));
  const auto objective = [&](const std::vector<double>& x) {
    return banded_objective(goal, weights, x);
  };
  return {BandedToeplitz{coefficients_at(minimize(objective, std::move(start)))}, goal.steps};
}

StrategyMatrix optimize_buffered_toeplitz(const ErrorObjective& goal, int buffers) {
  constexpr int max = 16;
  check(buffers >= 0 && buffers <= max, "optimize_buffered_toeplitz: {} buffers", buffers);
  const std::vector<double> weights = row_weights(goal);
  const auto objective = [&](const std::vector<double>& x) {
    return buffered_objective(goal, weights, x);
  };
  // A single start may make two buffers coincide needlessly: try two.
  const auto steps = static_cast<double>(goal.steps);
  std::vector<double> best;
  double min = std::numeric_limits<double>::infinity();
  const double min_separation =
      std::min(steps, static_cast<double>(goal.participation.min_separation));
  for (const double longest : {steps, min_separation}) {
    std::vector<double> x = minimize(objective, start_of_buffers(longest, buffers));
    const double value = objective(x).value;
    const BufferedToeplitz factor = buffers_at(x);
    if (value >= min || std::accumulate(factor.scales.begin(), factor.scales.end(), 0.0) > 1)
      continue;
    min = value;
    best = std::move(x);
  }
  check(std::isfinite(min), "optimize_buffered_toeplitz: found none for {} steps", goal.steps);
  return {buffers_at(best), goal.steps};
}

}  // namespace sotto
