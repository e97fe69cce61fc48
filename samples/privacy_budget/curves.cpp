#include "samples/privacy_budget/curves.h"

#include <algorithm>
#include <cmath>

#include "dp/noise/noise_grid.h"
#include "dp/numerics/directed_rounding.h"

namespace sotto::budget {

namespace {

constexpr int points = 12;                                  // of the curve over steps
constexpr double decades[] = {-4, -3, -2, -1, 0, 1, 2, 3};  // of delta, around the one asked for
constexpr double max_delta = 0.1;
constexpr int noise_points = 4;  // on each side of the noise asked for, up to twice and half of it

std::vector<double> step_grid(std::int64_t steps) {
  std::vector<double> grid;
  for (int k = 1; k <= points; ++k) {
    const auto step = static_cast<double>(steps / points * k + steps % points * k / points);
    if (step > (grid.empty() ? 0 : grid.back())) grid.push_back(step);
  }
  return grid;
}

std::vector<double> delta_grid(double delta) {
  std::vector<double> grid;
  for (const double decade : decades) {
    const double at = delta * std::pow(10, decade);
    if (decade == 0 || (at > 0 && at <= max_delta)) grid.push_back(at);
  }
  return grid;
}

std::vector<double> noise_grid() {
  std::vector<double> grid;
  for (int k = -noise_points; k <= noise_points; ++k) {
    grid.push_back(std::exp2(static_cast<double>(k) / noise_points));
  }
  return grid;
}

using Value = std::function<double(const Series&, double x)>;

CurveChart drawn(CurveChart chart, const CurveQuestion& question, const std::vector<double>& grid,
                 const Value& value, Progress& progress) {
  chart.y_name = "ε";
  chart.label = [](double value) { return epsilon_text(value); };
  for (const Series& series : question.series) {
    Curve curve{.name = series.name,
                .x = grid,
                .colour = series.colour,
                .dash = static_cast<int>(series.method)};
    for (const double x : grid) {
      curve.y.push_back(value(series, x));
      progress.advance();
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

}  // namespace

std::vector<CurveChart> privacy_curves(const CurveQuestion& q, Progress& progress) {
  const std::vector<double> steps = step_grid(q.steps), deltas = delta_grid(q.delta);
  std::vector<double> noises = noise_grid();
  for (double& noise : noises) noise *= q.noise;
  progress.begin(
      "curves", static_cast<int>((steps.size() + deltas.size() + noises.size()) * q.series.size()));
  const auto spent = [](const Series& s, const History& history, double delta) {
    return epsilon(s.method, s.relation, history, delta).upper;
  };
  // The samplings' epsilons differ by orders of magnitude.
  const bool log_y = q.series.size() > 1;
  return {
      drawn(
          {.name = "Epsilon over steps", .x_name = "steps", .log_y = log_y}, q, steps,
          [&](const Series& s, double x) {
            return spent(s, s.history(std::llround(x), 1), q.delta);
          },
          progress),
      drawn(
          {.name = "Epsilon over delta",
           .x_name = "delta",
           .log_x = true,
           .log_y = log_y,
           .mark = q.delta},
          q, deltas, [&](const Series& s, double x) { return spent(s, s.history(q.steps, 1), x); },
          progress),
      drawn(
          {.name = "Epsilon over noise",
           .x_name = q.relative_noise ? "noise, times what ran" : "noise multiplier",
           .log_y = true,
           .mark = q.noise},
          q, noises,
          [&](const Series& s, double x) {
            return spent(s, s.history(q.steps, x / q.noise), q.delta);
          },
          progress)};
}

}  // namespace sotto::budget
