// Composition of losses that were moved to the nearest lattice point. Proof in
// docs/appendix/proofs-accounting.md, section 5.
#pragma once

#include "dp/accounting/pld/side_bound.h"

namespace sotto {

// The spacing with the requested error (Gopi, Lee and Wutschitz 2021, theorem 5.5), or a coarser
// one if that takes too long.
double matched_spacing(const ComposedQuery& query, const PldPlan& plan);

// The bound from the moved losses, corrected in epsilon for the moves and in delta for the
// probability that they are larger.
double matched_bound(const ComposedQuery& query, const PldSide& side, double tilt,
                     const LossWindow& window);

}  // namespace sotto
