// The accountants of each kind.
#pragma once

#include <memory>

#include "dp/accounting/accountant.h"

namespace sotto {

// An accountant with an empty history.
std::unique_ptr<Accountant> make_accountant(
    AccountantKind kind = AccountantKind::pld,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one);
// Makes such an accountant at each call.
AccountantFactory accountant_factory(
    AccountantKind kind = AccountantKind::pld,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one);

}  // namespace sotto
