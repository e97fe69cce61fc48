#include "sotto/dp/budget.h"

#include <limits>
#include <utility>

#include "sotto/core/error.h"

namespace sotto {

Budget::Budget(const Ledger& ledger, NewAccountant accountant, double delta,
               std::optional<double> target_epsilon)
    : ledger_(ledger),
      new_accountant_(std::move(accountant)),
      delta_(delta),
      target_epsilon_(target_epsilon),
      spent_(new_accountant_()) {}

// Composes what the ledger holds besides what was composed before.
void Budget::catch_up() const {
  std::map<Event, std::int64_t> now;
  for (const auto& [event, count] : ledger_.events()) now[event] += count;
  if (now == composed_) return;
  epsilon_.reset();
  for (const auto& [event, count] : composed_) {
    if (now[event] >= count) continue;
    // A reservation was settled: some of it was not used.
    spent_ = new_accountant_();
    composed_.clear();
    break;
  }
  for (const auto& [event, count] : now) spent_->compose(event, count - composed_[event]);
  composed_ = std::move(now);
}

double Budget::epsilon() const {
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  catch_up();
  if (!epsilon_) epsilon_ = spent_->epsilon(delta_);
  return *epsilon_;
}

double Budget::epsilon_with(const Releases& more) const {
  const std::unique_ptr<Accountant> all = new_accountant_();
  for (const auto& [event, count] : ledger_.events()) all->compose(event, count);
  for (const auto& [event, count] : more) all->compose(event, count);
  return all->epsilon(delta_);
}

}  // namespace sotto
