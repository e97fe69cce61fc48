// The epsilon of releases by one accountant, at the delta that the tests of histories share.
#pragma once

#include "dp/accounting/pld/pld_accountant.h"

namespace sotto {

inline constexpr double delta = 1e-5;

template <class A>
double epsilon_of(const EventCounts& releases, A accountant) {
  for (const auto& [event, count] : releases) accountant.compose(event, count);
  return accountant.epsilon(delta);
}

inline double pld(const EventCounts& releases) { return epsilon_of(releases, PldAccountant()); }

}  // namespace sotto
