// Composition of losses if a single large one may decide.
#pragma once

#include "dp/accounting/pld/large_losses.h"
#include "dp/accounting/pld/side_bound.h"

namespace sotto {

// The bound for (P, Q) when one loss above the estimate's limit may decide.
double large_loss_bound(const ComposedQuery& query, Bound bound, const LargeLossEstimate& estimate);

}  // namespace sotto
