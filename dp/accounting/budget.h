// What a ledger's releases have spent of an (epsilon, delta) budget, and whether more may be made.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "dp/accounting/calibration.h"
#include "dp/ledger/ledger.h"

namespace sotto {

class Budget {
 public:
  // Without a target everything is allowed.
  Budget(const Ledger& ledger, NewAccountant accountant, double delta,
         std::optional<double> target_epsilon);

  // Spent by all that is in the ledger (History::charged), by the accountant, or the adaptive one
  // where settings could have been chosen by looking at releases (History::adaptive); infinite when
  // the ledger is marked as not private.
  double epsilon() const;
  // The ledger's history, as it is charged. Where the whole plan would be charged and is not within
  // the target, the releases are charged as adaptive: plans and target, which are older than every
  // release, decide that.
  History history() const { return as_charged(ledger_.history()); }
  // Returns whether the target holds when these releases follow on those in the ledger.
  bool allows_after(const EventCounts& more) const;
  // Returns whether the target holds for these releases and no others.
  bool allows(const History& after) const;
  // The epsilon of all that the ledger's runs planned; nothing where something else was released.
  std::optional<double> epsilon_planned() const;
  // allows() for Ledger::record; nothing without a target. The budget must outlive it.
  Ledger::BudgetCheck admission() const;
  double delta() const { return delta_; }
  std::string accountant() const;

 private:
  using Total = std::map<Event, std::int64_t>;

  std::unique_ptr<Accountant> fresh(const History& history) const;
  History as_charged(History history) const;
  double epsilon_of_plans(const EventCounts& plans) const;

  Ledger ledger_;
  NewAccountant new_accountant_;
  double delta_;
  std::optional<double> target_epsilon_;
  // Of the ledger as it was when it was read last.
  mutable std::unique_ptr<Accountant> spent_;
  mutable Total composed_;
  mutable bool adaptive_ = false;
  mutable std::optional<double> epsilon_;
  // More releases never cost less: what is within the first is allowed, what holds all of the
  // second is not.
  mutable Total allowed_;
  mutable std::optional<Total> refused_;
  mutable bool answers_adaptive_ = false;
  mutable EventCounts plans_;  // and their epsilon
  mutable double plans_epsilon_ = 0;
};

}  // namespace sotto
