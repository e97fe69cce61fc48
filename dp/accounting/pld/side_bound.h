// Bounds on a composition from one direction of its losses and one side of the truth.
#pragma once

#include <optional>

#include "dp/accounting/pld/loss_cache.h"
#include "dp/accounting/pld/pld_planner.h"

namespace sotto {

// A query about the composition of these releases, whose losses are kept in the cache.
struct ComposedQuery {
  LossCache& losses;
  const ReleaseCounts& counts;
  PldQuery question;

  // The query for another delta or epsilon.
  ComposedQuery with(double given) const { return {losses, counts, {question.of, given}}; }
};

// The plan's window, on the lattice of `side` or on the first coarser one that is affordable, to
// which `side` is set; nullopt if there is none.
std::optional<LossWindow> fit_window(const ComposedQuery& query, PldSide& side,
                                     const PldPlan& plan);

// The best Chernoff bound, from above, over a geometric sequence of tilts around `tilt`.
double chernoff(const ComposedQuery& query, const PldSide& side, double tilt);

// The answer from the tilted sum of the discrete losses in a window.
double side_bound(const ComposedQuery& query, const PldSide& side, double tilt,
                  const LossWindow& window);

}  // namespace sotto
