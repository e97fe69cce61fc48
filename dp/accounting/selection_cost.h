// The cost of a private selection: of releasing the best of a random number of runs, by a score
// that is part of their private outputs, or computed from them and public data. The proof is in
// docs/appendix/proofs-accounting.md, section 8.
#pragma once

#include <memory>

#include "dp/accounting/make_accountant.h"
#include "dp/ledger/ledger_contents.h"

namespace sotto {

// Let delta(e) be the privacy profile of one run and of all other releases of a ledger. With the
// selection it is at most runs * delta(e - epsilon).
struct SelectionCost {
  double epsilon = 0;  // is added; infinity if there is no bound
  double runs = 1;     // mean number of runs, by which delta is divided
};

// For a number of runs K of TruncatedNegativeBinomial{eta, gamma}: runs = E[K], and epsilon =
// (eta + 1) e1 with the smallest e1 >= 0 such that
//
//   (1 - gamma) delta(e1) <= gamma (e^e1 - 1),
//
// both rounded up. It is sharper than, and in the form of, that of Koskela, Redberg and Wang 2024;
// for delta(e1) = 0 it is that of Papernot and Steinke 2022, (2 + eta) e1 in all. Throws where
// Accountant::compose() does.
SelectionCost selection_cost(const PrivateSelection& selection,
                             const AccountantFactory& accountant);

// The epsilon of a private selection alone, for delta in (0, 1) and the accountant's neighbouring
// relation.
double selection_epsilon(const PrivateSelection& selection, double delta,
                         const AccountantFactory& accountant = accountant_factory());

// An accountant that has the cost of the history's selection, if there is one, and into which
// history.charged() has yet to be composed: by the factory or, for an adaptive history, the
// adaptive one.
std::unique_ptr<Accountant> accountant_for(const History& history,
                                           const AccountantFactory& accountant);

}  // namespace sotto
