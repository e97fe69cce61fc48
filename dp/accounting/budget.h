// The part of an (epsilon, delta) budget that a ledger's releases have spent, and whether further
// releases are allowed.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "dp/accounting/calibration.h"
#include "dp/ledger/ledger.h"

namespace sotto {

// Decides whether releases keep a target. The engine passes admission() to Ledger::record, so that
// a release over budget is refused before it is made.
class Budget {
 public:
  // Without a target every release is allowed.
  Budget(const Ledger& ledger, AccountantFactory accountant, double delta,
         std::optional<double> target_epsilon);

  // The epsilon of all that the ledger charges (History::charged), by the accountant, or by the
  // adaptive one if settings could have been chosen by looking at releases (History::adaptive);
  // infinity when the ledger is marked as not private.
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
  using Total = std::map<Event, std::int64_t>;

  std::unique_ptr<Accountant> fresh(const History& history) const;
  History as_charged(History history) const;
  double epsilon_of_plans(const EventCounts& plans) const;

  Ledger ledger_;
  AccountantFactory make_accountant_;
  double delta_;
  std::optional<double> target_epsilon_;
  // of the ledger as it was last read
  mutable std::unique_ptr<Accountant> spent_;
  mutable Total composed_;
  mutable bool adaptive_ = false;
  mutable std::optional<double> epsilon_;
  // Answers known so far. More releases never cost less: a history within allowed_ is allowed, one
  // that contains all of refused_ is not.
  mutable Total allowed_;
  mutable std::optional<Total> refused_;
  mutable bool answers_adaptive_ = false;
  mutable EventCounts plans_;  // the plans whose epsilon is plans_epsilon_
  mutable double plans_epsilon_ = 0;
};

}  // namespace sotto
