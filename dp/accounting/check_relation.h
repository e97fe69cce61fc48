// Refuses accountants that are for another neighbouring relation than a ledger.
#pragma once

#include "core/error.h"
#include "dp/accounting/accountant.h"
#include "dp/ledger/ledger_text.h"

namespace sotto {

// Throws std::invalid_argument, naming `what`, unless the accountant's relation is the ledger's.
inline void check_relation(const char* what, const Accountant& accountant,
                           const LedgerHeader& header) {
  check(accountant.relation() == header.relation,
        "{}: an accountant for \"{}\", where the ledger is for \"{}\"", what,
        relation_text(accountant.relation()), relation_text(header.relation));
}

}  // namespace sotto
