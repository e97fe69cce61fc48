// Bounds, from both sides, on compositions of releases by their privacy loss distributions (PLD).
#pragma once

#include <cstdint>
#include <map>

#include "dp/accounting/pld/loss_cache.h"
#include "dp/accounting/pld/pld_query.h"
#include "dp/event.h"

namespace sotto {

// Answers queries about growing histories. Results are reused.
class PldComposition {
 public:
  // The smallest noise multiplier of upper bounds; for less noise, lower bounds use this one.
  static constexpr double min_noise = 0.01;

  explicit PldComposition(NeighboringRelation relation,
                          Discretization rounding = Discretization::connect_the_dots)
      : relation_(relation), losses_(rounding) {}

  // A bound on the epsilon or delta of the query, for a history of full, Poisson and fixed-size
  // batches whose noise multipliers and sampling rates are positive. Lower bounds of fixed-size
  // batches use the worse of their two directions only.
  double answer(const std::map<Event, std::int64_t>& history, const PldQuery& question,
                Bound bound);

 private:
  NeighboringRelation relation_;
  LossCache losses_;
};

}  // namespace sotto
