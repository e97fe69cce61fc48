#include "dp/accounting/make_accountant.h"

#include "dp/accounting/pld/pld_accountant.h"
#include "dp/accounting/pld/prv_accountant.h"
#include "dp/accounting/rdp/rdp_accountant.h"

namespace sotto {

std::unique_ptr<Accountant> make_accountant(AccountantKind kind, NeighboringRelation relation) {
  switch (kind) {
    case AccountantKind::pld: return std::make_unique<PldAccountant>(relation);
    case AccountantKind::prv: return std::make_unique<PrvAccountant>(relation);
    case AccountantKind::rdp: break;
  }
  return std::make_unique<RdpAccountant>(default_orders(), relation);
}

AccountantFactory accountant_factory(AccountantKind kind, NeighboringRelation relation) {
  return [kind, relation] { return make_accountant(kind, relation); };
}

}  // namespace sotto
