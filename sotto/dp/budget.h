// What a ledger's releases have spent of an (epsilon, delta) budget, and whether more may be made.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "sotto/dp/calibration.h"
#include "sotto/dp/ledger.h"

namespace sotto {

class Budget {
 public:
  // The ledger must outlive the budget. Without a target everything is allowed.
  Budget(const Ledger& ledger, NewAccountant accountant, double delta,
         std::optional<double> target_epsilon);

  // Spent by all that is in the ledger; infinite when the ledger is marked as not private.
  double epsilon() const;
  // The same with more releases after it, as if noise and batches were secret.
  double epsilon_with(const Releases& more) const;
  // Whether the target holds after these releases.
  bool allows(const Releases& more) const {
    return !target_epsilon_ || epsilon_with(more) <= *target_epsilon_;
  }
  double delta() const { return delta_; }
  std::string accountant() const { return spent_->name(); }

 private:
  void catch_up() const;

  const Ledger& ledger_;
  NewAccountant new_accountant_;
  double delta_;
  std::optional<double> target_epsilon_;
  // Of the ledger as it was when it was read last.
  mutable std::unique_ptr<Accountant> spent_;
  mutable std::map<Event, std::int64_t> composed_;
  mutable std::optional<double> epsilon_;
};

}  // namespace sotto
