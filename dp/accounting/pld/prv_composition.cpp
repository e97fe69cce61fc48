// Composition of losses that were moved to the nearest lattice point. Proof in
// docs/appendix/proofs-accounting.md, section 5.
#include <algorithm>
#include <cmath>

#include "dp/accounting/pld/composition.h"

namespace sotto {

namespace {

// A bound on the shift of the sum, to either side, due to moving the losses; it fails with
// probability `missed`: Hoeffding (1963), theorem 2.
double hoeffding(double squared_widths, double drift, double missed) {
  return std::sqrt(-0.5 * std::log(missed) * squared_widths) + drift;
}

}  // namespace

// The spacing with the requested error (Gopi, Lee and Wutschitz 2021, theorem 5.5), or a coarser
// one if that takes too long.
double PldComposition::matched_spacing(const Counts& counts, const PldPlan& plan) const {
  constexpr double max_error = 0.01, max_points = 1 << 21, max_cells = 1 << 18;
  double releases = 0, range = 0;
  for (const auto& [key, count] : counts) {
    const DominatingPair& pair = kinds_.at(key).pair;
    releases += count;
    range += pair.loss(pair.highest()) - pair.loss(pair.lowest());
  }
  const double error = std::min(plan.error, max_error);
  const double wanted = error / hoeffding(releases, 0, tail_mass_truncation_ * releases);
  const double window = 2 * std::sqrt(2 * plan.log_outside) * plan.stddev;
  const double kinds = static_cast<double>(counts.size());
  const double min = std::max(window * kinds / max_points, range / max_cells);
  // Rounding lets queries with similar counts share the cached sums of one spacing.
  return std::exp2(std::floor(4 * std::log2(std::max(wanted, min))) / 4);
}

// The bound from the moved losses, corrected by `moved` in epsilon and by `missed` in delta.
double PldComposition::matched_answer(const Counts& counts, const Side& side, double tilt,
                                      const LossWindow& window, const PldQuery& question) {
  double releases = 0, squares = 0, drift = 0;
  for (const auto& [key, count] : counts) {
    const DiscretePld& pair = discrete(key, side);
    releases += count;
    squares += count * pair.width * pair.width;
    drift += count * pair.drift;
  }
  const double missed = tail_mass_truncation_ * releases, moved = hoeffding(squares, drift, missed);
  const double sign = side.bound == Bound::upper ? 1 : -1;
  const bool of_delta = question.of == PldQuery::Of::delta;
  const PldQuery nearer = {question.of, question.given - sign * (of_delta ? moved : missed)};
  if (!of_delta && nearer.given >= 1) return 0;
  const double answer = composed(counts, side, tilt, window, nearer);
  return of_delta ? std::clamp(answer + sign * missed, 0.0, 1.0)
                  : std::max(answer + sign * moved, 0.0);
}

}  // namespace sotto
