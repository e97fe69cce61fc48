#include "dp/accounting/ledger_epsilon.h"

#include <limits>

#include "dp/accounting/check_relation.h"
#include "dp/accounting/selection_cost.h"

namespace sotto {

double epsilon(const Ledger& ledger, double delta, AccountantKind kind) {
  return epsilon(ledger, delta, accountant_factory(kind, ledger.header().relation));
}

double epsilon(const Ledger& ledger, double delta, const AccountantFactory& accountant) {
  check_relation("epsilon", *accountant(), ledger.header());
  if (!ledger.private_noise()) return std::numeric_limits<double>::infinity();
  if (const auto selection = ledger.selection_of_run())
    return selection_epsilon(*selection, delta, accountant);
  const History history = ledger.history();
  const auto spent = accountant_for(history, accountant);
  for (const auto& [event, count] : history.charged()) spent->compose(event, count);
  return spent->epsilon(delta);
}

}  // namespace sotto
