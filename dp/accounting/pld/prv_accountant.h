// Accounting by privacy loss random variables, the numerical composition of Gopi, Lee and Wutschitz
// (2021): that of the PLD accountant, but with losses moved to the nearest lattice point. It is an
// independent check of the PLD accountant, and comparable with the PRV accountants of other
// libraries. Proof in docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include "dp/accounting/pld/discrete_pld.h"
#include "dp/accounting/pld/pld_accountant.h"

namespace sotto {

// Bounds as PldAccountant, for the same samplings: within about 0.01 of an estimate of epsilon, 1 %
// if epsilon is below 1, and more if that takes more than 2^21 points.
class PrvAccountant final : public PldAccountant {
 public:
  explicit PrvAccountant(NeighboringRelation relation = NeighboringRelation::add_or_remove_one)
      : PldAccountant(AccountantKind::prv, relation, Discretization::mean_matched) {}
};

}  // namespace sotto
