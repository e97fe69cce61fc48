#include "dp/accounting/selection_cost.h"

#include <cmath>
#include <limits>

#include "dp/accounting/adaptive_accountant.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::unique_ptr<Accountant> one_run(const PrivateSelection& selection,
                                    const AccountantFactory& accountant) {
  auto run = accountant();
  for (const auto& [event, count] : selection.run) run->compose(event, count);
  return run;
}

// The e1 of the header.
double shift(const Accountant& run, double gamma) {
  constexpr double smallest = 1e-3, largest = 200, tolerance = 1e-5;
  const auto excess = [&](double epsilon) {
    return (1 - gamma) * run.delta(epsilon) - gamma * std::expm1(epsilon);
  };
  if (excess(0) <= 0) return 0;
  double safe = smallest;
  while (excess(safe) > 0) {
    if (safe > largest) return infinity;
    safe *= 2;
  }
  return safe_root(safe == smallest ? 0 : safe / 2, safe, tolerance, excess);
}

}  // namespace

// Drawn numbers of runs have probabilities within a factor 1 +- k 2^-30 of the exact ones, so that
// f', the derivative of their generating function, is within 1 +- 2^-30 (eta + 2) / gamma.
SelectionCost selection_cost(const PrivateSelection& selection,
                             const AccountantFactory& accountant) {
  const auto& [eta, gamma] = selection.runs;
  const auto run = one_run(selection, accountant);
  const double rounding = 0x1p-30 * (eta + 2) / gamma;
  return {.epsilon = (eta + 1) * shift(*run, gamma) + 4 * rounding,
          .runs = selection.runs.mean() * (1 + 2 * rounding)};
}

double selection_epsilon(const PrivateSelection& selection, double delta,
                         const AccountantFactory& accountant) {
  const auto run = one_run(selection, accountant);
  run->charge_selection(selection_cost(selection, accountant));
  return run->epsilon(delta);
}

std::unique_ptr<Accountant> accountant_for(const History& history,
                                           const AccountantFactory& accountant) {
  auto made = accountant();
  if (history.adaptive) made = adaptive_accountant_factory(made->relation(), history.plans)();
  if (history.selection) made->charge_selection(selection_cost(*history.selection, accountant));
  return made;
}

}  // namespace sotto
