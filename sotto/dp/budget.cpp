#include "sotto/dp/budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sotto/core/error.h"

namespace sotto {

namespace {

std::map<Event, std::int64_t> totals(const EventCounts& counts) {
  std::map<Event, std::int64_t> total;
  for (const auto& [event, count] : counts) total[event] += count;
  return total;
}

bool within(const std::map<Event, std::int64_t>& part, const std::map<Event, std::int64_t>& whole) {
  return std::all_of(part.begin(), part.end(), [&](const auto& entry) {
    const auto found = whole.find(entry.first);
    return entry.second <= (found == whole.end() ? 0 : found->second);
  });
}

}  // namespace

Budget::Budget(const Ledger& ledger, NewAccountant accountant, double delta,
               std::optional<double> target_epsilon)
    : ledger_(ledger),
      new_accountant_(std::move(accountant)),
      delta_(delta),
      target_epsilon_(target_epsilon),
      spent_(new_accountant_()) {}

double Budget::epsilon() const {
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  Total now = totals(ledger_.events());
  if (epsilon_ && now == composed_) return *epsilon_;
  epsilon_.reset();
  if (!within(composed_, now)) {  // a reservation was settled: some of it was not used
    spent_ = new_accountant_();
    composed_.clear();
  }
  for (const auto& [event, count] : now) {
    spent_->compose(event, count - composed_[event]);
    composed_[event] = count;
  }
  composed_ = std::move(now);
  epsilon_ = spent_->epsilon(delta_);
  return *epsilon_;
}

bool Budget::allows_after(const EventCounts& more) const {
  EventCounts all = ledger_.events();
  for (const auto& [event, count] : more) add_releases(all, event, count);
  return allows(all);
}

bool Budget::allows(const EventCounts& counts) const {
  if (!target_epsilon_) return true;
  if (!ledger_.private_noise()) return false;
  const Total total = totals(counts);
  if (within(total, allowed_)) return true;
  if (refused_ && within(*refused_, total)) return false;
  const std::unique_ptr<Accountant> all = new_accountant_();
  for (const auto& [event, count] : total) all->compose(event, count);
  const bool allowed = all->epsilon(delta_) <= *target_epsilon_;
  if (allowed) {
    allowed_ = total;
  } else {
    refused_ = total;
  }
  return allowed;
}

Ledger::Admit Budget::admission() const {
  if (!target_epsilon_) return {};
  return [this](const EventCounts& after) { return allows(after); };
}

}  // namespace sotto
