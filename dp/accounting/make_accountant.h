// Makes an accountant by its kind, and parses the names of kinds.
#pragma once

#include <memory>

#include "dp/accounting/accountant.h"

namespace sotto {

// Returns an accountant that has composed nothing yet.
std::unique_ptr<Accountant> make_accountant(
    AccountantKind kind = AccountantKind::pld,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one);
// Makes such an accountant at each call.
AccountantFactory accountant_factory(
    AccountantKind kind = AccountantKind::pld,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one);

}  // namespace sotto
