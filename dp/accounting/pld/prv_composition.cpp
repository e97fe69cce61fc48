#include "dp/accounting/pld/prv_composition.h"

#include <algorithm>
#include <cmath>

namespace sotto {

namespace {

// A bound on the shift of the sum, to either side, due to moving the losses; it fails with
// probability `missed`: Hoeffding (1963), theorem 2.
double hoeffding(double squared_widths, double drift, double missed) {
  return std::sqrt(-0.5 * std::log(missed) * squared_widths) + drift;
}

}  // namespace

double matched_spacing(const ComposedQuery& query, const PldPlan& plan) {
  constexpr double max_error = 0.01, max_points = 1 << 21, max_cells = 1 << 18;
  double releases = 0, range = 0;
  for (const auto& [key, count] : query.counts) {
    const DominatingPair& pair = query.losses.pair(key);
    releases += count;
    range += pair.loss(pair.highest()) - pair.loss(pair.lowest());
  }
  const double error = std::min(plan.error, max_error);
  const double wanted =
      error / hoeffding(releases, 0, query.losses.tail_mass_truncation() * releases);
  const double window = 2 * std::sqrt(2 * plan.log_outside) * plan.stddev;
  const double kinds = static_cast<double>(query.counts.size());
  const double min = std::max(window * kinds / max_points, range / max_cells);
  // Rounding lets queries with similar counts share the cached sums of one spacing.
  return std::exp2(std::floor(4 * std::log2(std::max(wanted, min))) / 4);
}

double matched_bound(const ComposedQuery& query, const PldSide& side, double tilt,
                     const LossWindow& window) {
  double releases = 0, squares = 0, drift = 0;
  for (const auto& [key, count] : query.counts) {
    const DiscretePld& pair = query.losses.discrete(key, side);
    releases += count;
    squares += count * pair.width * pair.width;
    drift += count * pair.drift;
  }
  const double missed = query.losses.tail_mass_truncation() * releases;
  const double moved = hoeffding(squares, drift, missed);
  const double sign = side.bound == Bound::upper ? 1 : -1;
  const bool of_delta = query.question.of == PldQuery::Of::delta;
  const double nearer = query.question.given - sign * (of_delta ? moved : missed);
  if (!of_delta && nearer >= 1) return 0;
  const double answer = side_bound(query.with(nearer), side, tilt, window);
  return of_delta ? std::clamp(answer + sign * missed, 0.0, 1.0)
                  : std::max(answer + sign * moved, 0.0);
}

}  // namespace sotto
