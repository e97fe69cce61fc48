#include "dp/accounting/pld/pld_planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <utility>

namespace sotto {

namespace {

constexpr int max_steps = 60;
constexpr double jump_accuracy = 5e-5;
// The relative width used if the tilted sum is concentrated at its end.
constexpr double no_width = 1e-9;

// Returns whether tilt times loss loses too many digits: the loss is then practically at its end.
bool too_steep(const Cumulants& c, double tilt) {
  constexpr double max = 1e8;
  return tilt * std::abs(c.mean) > max;
}

// The largest power of 2^(1/parts) that is not above x.
double round_down(double x, double parts) {
  return x > 0 ? std::exp2(std::floor(std::log2(x) * parts) / parts) : x;
}

// ln of the saddle-point approximation of delta at the mean of the tilted sum.
double log_saddle_point(const Cumulants& c, double tilt) {
  const double width = 1 + tilt * std::sqrt(2 * std::numbers::pi * c.variance);
  return c.value - tilt * c.mean - std::log(width) - std::log1p(tilt);
}

// The tilt at whose mean delta has about this value; -ln delta is nearly the square of the tilt.
double tilt_for_delta(const SampledCumulants& cumulants, double delta) {
  constexpr double precision = 0.02, start = 1, min = 1e-6;
  const double goal = -std::log(delta);
  double low = 0, high = std::numeric_limits<double>::infinity(), tilt = start;
  for (int step = 0; step < max_steps; ++step) {
    const Cumulants c = cumulants.at(tilt);
    const double reached = -log_saddle_point(c, tilt);
    if (std::abs(reached - goal) < precision * goal) break;
    if (reached < goal && too_steep(c, tilt)) break;
    (reached > goal ? high : low) = tilt;
    const double guess = tilt * std::sqrt(goal / std::max(reached, min * goal));
    tilt = guess > low && guess < high ? guess
           : std::isinf(high)          ? 2 * low
           : low > 0                   ? std::sqrt(low * high)
                                       : high / 2;
  }
  return tilt;
}

// The tilt at which the sum's mean is epsilon; 0 if it would be negative, and never so large that
// delta vanishes.
double tilt_for_epsilon(const SampledCumulants& cumulants, double epsilon) {
  constexpr double precision = 0.1;  // in standard deviations
  constexpr double min = 1e-6, growth = 4, trivial_bound = 1000;
  double low = 0, high = std::numeric_limits<double>::infinity(), tilt = 0;
  for (int step = 0; step < max_steps; ++step) {
    const Cumulants c = cumulants.at(tilt);
    const double missing = epsilon - c.mean;
    if (missing * missing < precision * precision * c.variance) break;
    if (missing > 0 ? too_steep(c, tilt) : tilt == 0) break;
    if (c.value - tilt * epsilon < -trivial_bound) break;
    (missing < 0 ? high : low) = tilt;
    const double guess =
        std::min(tilt + missing / c.variance, growth * tilt + trivial_bound / epsilon);
    tilt = guess > low && guess < high ? guess
           : std::isinf(high)          ? 2 * low + 1
                                       : std::sqrt(std::max(low, min * high) * high);
  }
  return tilt;
}

// The standard deviation of a tilted sum, if the typical distance of one loss from the centre is
// `typical`.
double stddev_of(const Cumulants& c, double typical) {
  return std::max(std::sqrt(c.variance), no_width * (std::abs(c.mean) + typical));
}

// A plan with this tilt for an answer near this epsilon and delta, without its lattice.
PldPlan plan_without_lattice(const SampledCumulants& cumulants, double tilt, double epsilon,
                             double log_delta) {
  constexpr double margin = 15, min_outside = 12, max_outside = 600;
  const Cumulants c = cumulants.at(tilt);
  const double looseness = c.value - tilt * epsilon + log_largest_weight(tilt) - log_delta;
  PldPlan plan{.tilt = tilt,
               .stddev = stddev_of(c, cumulants.typical()),
               .log_outside = std::clamp(looseness + margin, min_outside, max_outside)};
  const auto log_moment = [&](double t) { return cumulants.at(t).value; };
  const LossWindow window = tilted_window(log_moment, plan, no_width * cumulants.typical());
  plan.width = window.high - window.low;
  return plan;
}

// Halves the tilt while that makes the window much shorter, because an irrelevant tail may dominate
// the moments. Delta stays well above the rounding errors.
PldPlan with_shortest_window(PldPlan best, const SampledCumulants& cumulants, double epsilon,
                             double log_delta) {
  constexpr double much = 0.75, max_outside = 25;
  for (;;) {
    const PldPlan less = plan_without_lattice(cumulants, best.tilt / 2, epsilon, log_delta);
    if (less.log_outside > max_outside || !(less.width < much * best.width)) return best;
    best = less;
  }
}

}  // namespace

// The order s is optimal for a normal distribution; heavier tails need a smaller one.
LossWindow tilted_window(const std::function<double(double)>& log_moment, const PldPlan& plan,
                         double spacing) {
  const double base = log_moment(plan.tilt);
  const double stddev = std::max(plan.stddev, spacing);
  // The distance that the tilted sum reaches upwards (sign 1) or downwards (sign -1).
  const auto reach = [&](double sign) {
    double best = std::numeric_limits<double>::infinity();
    for (double s = std::sqrt(2 * plan.log_outside) / stddev;; s /= 2) {
      const double bound = (log_moment(plan.tilt + sign * s) - base + plan.log_outside) / s;
      if (!(bound < best)) return best;
      best = bound;
    }
  };
  return {-reach(-1), reach(1), 2 * std::exp(-plan.log_outside)};
}

double lattice_points(const LossWindow& window, double spacing) {
  return (window.high - window.low) / spacing + 2;
}

double log_largest_weight(double tilt) {
  return (tilt > 0 ? -tilt * std::log1p(1 / tilt) : 0) - std::log1p(tilt);
}

PldPlanner::PldPlanner(std::vector<SampledReleases> releases, bool mirrored,
                       const PldQuery& question, double accuracy)
    : cumulants_(std::move(releases), mirrored), question_(question), accuracy_(accuracy) {}

PldPlanner::PldPlanner(std::vector<SampledReleases> releases, const PldQuery& question)
    : PldPlanner(std::move(releases), false, question, jump_accuracy) {
  large_losses_ = true;
}

PldPlan PldPlanner::first() const {
  if (question_.of == PldQuery::Of::delta) {
    const double tilt = tilt_for_epsilon(cumulants_, question_.given);
    return plan(tilt, question_.given, log_saddle_point(cumulants_.at(tilt), tilt));
  }
  const double tilt = tilt_for_delta(cumulants_, question_.given);
  return plan(tilt, cumulants_.at(tilt).mean, std::log(question_.given));
}

PldPlan PldPlanner::near(double epsilon, double delta) const {
  return plan(tilt_for_epsilon(cumulants_, epsilon), epsilon, std::log(delta));
}

PldPlan PldPlanner::at_rest(double limit, double delta) const {
  // fraction of delta up to which two losses above the limit matter
  constexpr double margin = 14, part_of_two = 1e-6;
  const double rare = std::sqrt(part_of_two * delta / std::min(limit, 1.0));
  return {.stddev = std::sqrt(cumulants_.at(0).variance),
          .log_outside = std::max(margin + std::log(rare / delta), margin)};
}

PldPlan PldPlanner::next(const PldPlan& last, double answer) const {
  constexpr double margin = 13, finer = 2;
  const bool of_epsilon = question_.of == PldQuery::Of::epsilon;
  const double epsilon = of_epsilon ? answer : question_.given;
  const double log_delta = std::log(of_epsilon ? question_.given : answer);
  if (!std::isfinite(epsilon) || !std::isfinite(log_delta)) return last;
  if (large_losses_ && epsilon == 0) return last;
  const double tail_mass_truncation = cumulants_.at(last.tilt).value - last.tilt * epsilon +
                                      log_largest_weight(last.tilt) - last.log_outside;
  const PldPlan better = plan(tilt_for_epsilon(cumulants_, epsilon), epsilon, log_delta);
  const bool good = tail_mass_truncation < log_delta - margin &&
                    last.lattice.spacing < finer * better.lattice.spacing &&
                    last.lattice.dense >= better.lattice.dense / 2;
  return good ? last : better;
}

// A plan for an answer near this epsilon and delta.
PldPlan PldPlanner::plan(double tilt, double epsilon, double log_delta) const {
  constexpr double tilt_parts = 8, spacing_parts = 4, floor_part = 0.1, fine_part = 0.05;
  constexpr double max_power = 10, densest = 1 << 12;
  tilt = round_down(tilt, tilt_parts);
  const Cumulants c = cumulants_.at(tilt);
  const double typical = cumulants_.typical(), stddev = stddev_of(c, typical);
  const double error = accuracy_ * std::max(epsilon, floor_part * stddev);
  const double allowed =
      question_.of == PldQuery::Of::epsilon ? error : accuracy_ / std::max(tilt, 1 / stddev);
  // Discretization adds (1 + tilt) / 2 times the sum of E[width^2 / 6] to epsilon, where the width
  // is the spacing or 1/dense of the distance to the centre; each may take half. If one loss
  // decides, delta falls like a power of epsilon.
  const double steepness = large_losses_ ? std::max(tilt, max_power / epsilon) : tilt;
  const double variance = (large_losses_ ? accuracy_ * epsilon : allowed) / (1 + steepness);
  const double spacing = std::max(std::sqrt(6 * variance / cumulants_.count()),
                                  variance / (c.spread + no_width * typical));
  const double dense = std::clamp(std::sqrt(c.square / (6 * variance)), 1.0, densest);
  PldPlan plan = plan_without_lattice(cumulants_, tilt, epsilon, log_delta);
  if (!large_losses_) plan = with_shortest_window(plan, cumulants_, epsilon, log_delta);
  plan.lattice = {
      .spacing = round_down(spacing, spacing_parts),
      .dense = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(dense)))};
  plan.finest = round_down(fine_part * typical, spacing_parts);
  plan.error = round_down(error, spacing_parts);
  return plan;
}

}  // namespace sotto
