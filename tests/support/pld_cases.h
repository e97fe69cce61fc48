// Histories for the tests of accounting by privacy loss distributions.
#pragma once

#include "dp/accounting/pld/pld_accountant.h"

namespace sotto {

// Equal steps with Poisson batches.
inline PldAccountant composed(
    double q, double sigma, std::int64_t steps,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one) {
  PldAccountant accountant(relation);
  accountant.compose({sigma, Sampling::poisson, q}, steps);
  return accountant;
}

}  // namespace sotto
