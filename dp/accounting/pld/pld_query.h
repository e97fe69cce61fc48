// Queries about a composition of releases.
#pragma once

#include <limits>

#include "dp/accounting/pld/bound.h"

namespace sotto {

// A query about a composition: epsilon for a delta, or delta for an epsilon.
struct PldQuery {
  enum class Of { epsilon, delta };
  Of of = Of::epsilon;
  double given = 0;  // the delta or the epsilon that is given
};

// The trivial bound: 0 from below; infinite epsilon, or delta 1, from above.
inline double trivial_bound(const PldQuery& question, Bound bound) {
  if (bound == Bound::lower) return 0;
  return question.of == PldQuery::Of::delta ? 1 : std::numeric_limits<double>::infinity();
}

}  // namespace sotto
