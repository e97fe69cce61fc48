// Composes the releases that a ledger lists into an epsilon.
#pragma once

#include "dp/accounting/make_accountant.h"
#include "dp/ledger/ledger.h"

namespace sotto {

// The smallest epsilon that an accountant proves for the ledger's releases; for all planned
// releases if the number made could have been chosen (History::whole_plan); by the adaptive
// accountant if settings could have been chosen by looking at releases (History::adaptive);
// with the cost of a private selection (History::selection), also on the ledger of one of its runs
// (Ledger::of_candidate); infinity when the noise or the batches were not secret. It holds for the
// ledger's neighbouring relation. Throws std::invalid_argument unless delta is in (0, 1), and the
// errors of Accountant::compose for a release without a proof.
double epsilon(const Ledger& ledger, double delta, AccountantKind kind = AccountantKind::pld);
// By an accountant of your own. Throws std::invalid_argument if it is for another neighbouring
// relation than the ledger's.
double epsilon(const Ledger& ledger, double delta, const AccountantFactory& accountant);

}  // namespace sotto
