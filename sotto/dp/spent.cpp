#include "sotto/dp/spent.h"

#include <limits>

namespace sotto {

double epsilon(const Ledger& ledger, double delta, const NewAccountant& accountant) {
  const auto spent = accountant();
  for (const auto& [event, count] : ledger.events()) spent->compose(event, count);
  const double epsilon = spent->epsilon(delta);
  return ledger.private_noise() ? epsilon : std::numeric_limits<double>::infinity();
}

}  // namespace sotto
