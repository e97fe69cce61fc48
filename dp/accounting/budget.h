// The part of an (epsilon, delta) budget that a ledger's releases have spent, and whether further
// releases are allowed.
#pragma once

#include <memory>
#include <optional>

#include "dp/accounting/calibration.h"
#include "dp/ledger/ledger.h"

namespace sotto {

// Decides whether releases keep a target. The engine passes admission() to Ledger::record, so that
// a release over budget is refused before it is made.
class Budget {
 public:
  // Without a target every release is allowed. Throws std::invalid_argument for an accountant of
  // another neighbouring relation than the ledger's.
  Budget(const Ledger& ledger, AccountantFactory accountant, double delta,
         std::optional<double> target_epsilon);
  Budget(Budget&&) noexcept;
  Budget& operator=(Budget&&) noexcept;
  ~Budget();

  // The epsilon of all that the ledger charges (History::charged), by the accountant, or by the
  // adaptive one if settings could have been chosen by looking at releases (History::adaptive);
  // infinity when the ledger is marked as not private. On the ledger of one run of a private
  // selection it is that of the selection.
  double epsilon() const;
  // The ledger's history, as it is charged. If the whole plan would be charged and exceeds the
  // target, the releases are charged as adaptive instead; plans and target decide this, and they
  // are older than every release.
  History history() const { return as_charged(ledger_.history()); }
  // Returns whether the target holds after these further releases.
  bool allows_after(const EventCounts& more) const;
  // Returns whether the target holds for this history.
  bool allows(const History& after) const;
  // The epsilon of all that the ledger's runs planned; nullopt if a release was not planned.
  std::optional<double> epsilon_planned() const;
  // allows(), for Ledger::record; empty without a target. The budget must outlive it.
  Ledger::BudgetCheck admission() const;
  double delta() const { return delta_; }
  std::string accountant() const;

 private:
  // Answers known so far, which later ones reuse.
  struct Answers;

  History as_charged(History history) const;
  double epsilon_of_plans(const History& history) const;
  // The epsilon of the private selection, if the ledger is that of one of its runs.
  std::optional<double> epsilon_of_selection() const;
  void follow(const std::optional<PrivateSelection>& selection) const;

  Ledger ledger_;
  AccountantFactory make_accountant_;
  double delta_;
  std::optional<double> target_epsilon_;
  std::unique_ptr<Answers> answers_;
};

}  // namespace sotto
