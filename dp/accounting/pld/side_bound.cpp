#include "dp/accounting/pld/side_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sotto {

namespace {

// The Chernoff bound: all of the tilted mass gets the largest weight, which gives the bound by
// Renyi divergences (Canonne, Kamath and Steinke 2020, proposition 12).
double chernoff_bound(double log_moment, double tilt, const PldQuery& question,
                      double infinity_mass) {
  const double log_weight = log_largest_weight(tilt) + log_moment;
  if (question.of == PldQuery::Of::delta) {
    return std::min(std::exp(log_weight - tilt * question.given) + infinity_mass, 1.0);
  }
  const double delta = question.given - infinity_mass;
  return delta > 0 ? std::max((log_weight - std::log(delta)) / tilt, 0.0)
                   : std::numeric_limits<double>::infinity();
}

LossWindow window_of(const ComposedQuery& query, const PldSide& side, const PldPlan& plan) {
  return tilted_window(
      [&](double tilt) { return query.losses.log_moment(query.counts, side, tilt); }, plan,
      side.lattice.spacing);
}

}  // namespace

std::optional<LossWindow> fit_window(const ComposedQuery& query, PldSide& side,
                                     const PldPlan& plan) {
  if (!std::isnormal(side.lattice.spacing)) return {};
  LossWindow window = window_of(query, side, plan);
  if (!std::isfinite(window.high - window.low)) return {};
  while (lattice_points(window, side.lattice.spacing) > max_lattice_points) {
    side.lattice.spacing *= 2;
    window = window_of(query, side, plan);
  }
  if (!(lattice_points(window, side.lattice.spacing) <= max_lattice_points)) return {};
  return window;
}

double chernoff(const ComposedQuery& query, const PldSide& side, double tilt) {
  double infinity_mass = 0, releases = 0;
  for (const auto& [key, count] : query.counts) {
    infinity_mass += count * query.losses.discrete(key, side).infinity_mass;
    releases += count;
  }
  const double rounding = 1e-9 + 2 * mass_tolerance * releases;
  const auto bound = [&](double t) {
    return chernoff_bound(query.losses.log_moment(query.counts, side, t) + rounding, t,
                          query.question, infinity_mass);
  };
  double best = bound(tilt);
  for (const double factor : {0.5, 2.0}) {
    for (double t = factor * tilt, next = bound(t); next < best; next = bound(t *= factor)) {
      best = next;
    }
  }
  return best;
}

double side_bound(const ComposedQuery& query, const PldSide& side, double tilt,
                  const LossWindow& window) {
  const auto& [losses, counts, question] = query;
  const std::int64_t size = transform_size(lattice_points(window, side.lattice.spacing));
  const DeltaCurve curve(losses.sum(counts, side, tilt, size), window, side.bound);
  const bool of_delta = question.of == PldQuery::Of::delta;
  const double answer = of_delta ? curve.delta(question.given) : curve.epsilon(question.given);
  if (side.bound == Bound::lower) return answer;
  return std::min(answer, chernoff(query, side, tilt));
}

}  // namespace sotto
