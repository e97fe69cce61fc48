#include "dp/accounting/budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "dp/accounting/adaptive_accountant.h"

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

Budget::Budget(const Ledger& ledger, AccountantFactory accountant, double delta,
               std::optional<double> target_epsilon)
    : ledger_(ledger),
      make_accountant_(std::move(accountant)),
      delta_(delta),
      target_epsilon_(target_epsilon),
      spent_(make_accountant_()) {}

std::unique_ptr<Accountant> Budget::fresh(const History& history) const {
  auto accountant = make_accountant_();
  if (!history.adaptive) return accountant;
  return adaptive_accountant_factory(accountant->relation(), history.plans)();
}

double Budget::epsilon_of_plans(const EventCounts& plans) const {
  if (plans == plans_) return plans_epsilon_;
  const std::unique_ptr<Accountant> all = make_accountant_();
  for (const auto& [event, count] : totals(plans)) all->compose(event, count);
  plans_epsilon_ = all->epsilon(delta_);
  plans_ = plans;
  return plans_epsilon_;
}

History Budget::as_charged(History history) const {
  if (!history.whole_plan || !target_epsilon_) return history;
  history.adaptive = epsilon_of_plans(history.plans) > *target_epsilon_;
  history.whole_plan = !history.adaptive;
  return history;
}

double Budget::epsilon() const {
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  const History history = this->history();
  Total now = totals(history.charged());
  if (epsilon_ && now == composed_ && history.adaptive == adaptive_) return *epsilon_;
  epsilon_.reset();
  // Composed events are gone: part of a reservation was not used, or the last release was not
  // planned.
  if (!within(composed_, now) || history.adaptive != adaptive_) {
    spent_ = fresh(history);
    adaptive_ = history.adaptive;
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
  return allows(ledger_.history_after(more));
}

bool Budget::allows(const History& after) const {
  if (!target_epsilon_) return true;
  if (!ledger_.private_noise()) return false;
  const History history = as_charged(after);
  const Total total = totals(history.charged());
  if (std::exchange(answers_adaptive_, history.adaptive) != history.adaptive) {
    allowed_.clear();
    refused_.reset();
  }
  if (within(total, allowed_)) return true;
  if (refused_ && within(*refused_, total)) return false;
  const std::unique_ptr<Accountant> all = fresh(history);
  for (const auto& [event, count] : total) all->compose(event, count);
  const bool allowed = all->epsilon(delta_) <= *target_epsilon_;
  if (allowed) {
    allowed_ = total;
  } else {
    refused_ = total;
  }
  return allowed;
}

std::optional<double> Budget::epsilon_planned() const {
  const History history = ledger_.history();
  if (!history.within_plans) return std::nullopt;
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  return epsilon_of_plans(history.plans);
}

std::string Budget::accountant() const {
  return spent_->name() + (adaptive_ ? ", of orders fixed in advance" : "");
}

Ledger::BudgetCheck Budget::admission() const {
  if (!target_epsilon_) return {};
  return [this](const History& after) { return allows(after); };
}

}  // namespace sotto
