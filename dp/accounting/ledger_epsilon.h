// What a ledger says was spent.
#pragma once

#include "dp/accounting/accountant.h"
#include "dp/ledger/ledger.h"

namespace sotto {

// The smallest epsilon that an accountant proves for what was released, or for all
// that was planned where it could have been chosen which part came out (History::whole_plan), or
// the adaptive accountant where settings could have been chosen by looking at releases
// (History::adaptive); infinity when the noise or the batches were not secret. Throws
// std::invalid_argument unless delta is in (0, 1), and as Accountant::compose does for a release
// that the accountant has no proof for.
double epsilon(const Ledger& ledger, double delta,
               const NewAccountant& accountant = make_accountant());

}  // namespace sotto
