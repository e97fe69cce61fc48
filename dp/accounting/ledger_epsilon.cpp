#include "dp/accounting/ledger_epsilon.h"

#include <limits>

#include "dp/accounting/selection_cost.h"

namespace sotto::inline dp {

double epsilon(const Ledger& ledger, double delta, const AccountantFactory& accountant) {
  const History history = ledger.history();
  const auto spent = accountant_for(history, accountant);
  for (const auto& [event, count] : history.charged()) spent->compose(event, count);
  const double epsilon = spent->epsilon(delta);
  return ledger.private_noise() ? epsilon : std::numeric_limits<double>::infinity();
}

}  // namespace sotto::inline dp
