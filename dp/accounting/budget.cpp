#include "dp/accounting/budget.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "dp/accounting/check_relation.h"
#include "dp/accounting/selection_cost.h"

namespace sotto {

namespace {

using Total = std::map<Event, std::int64_t>;

Total totals(const EventCounts& counts) {
  Total total;
  for (const auto& [event, count] : counts) total[event] += count;
  return total;
}

bool within(const Total& part, const Total& whole) {
  return std::all_of(part.begin(), part.end(), [&](const auto& entry) {
    const auto found = whole.find(entry.first);
    return entry.second <= (found == whole.end() ? 0 : found->second);
  });
}

// The way in which a history's releases are charged: if as adaptive, the shares of delta follow the
// plans.
struct Charging {
  bool adaptive = false;
  EventCounts plans = {};

  bool operator==(const Charging&) const = default;
};

Charging charging_of(const History& history) {
  return {history.adaptive, history.adaptive ? history.plans : EventCounts()};
}

}  // namespace

struct Budget::Answers {
  // of the ledger as it was last read
  std::unique_ptr<Accountant> spent;
  Total composed;
  Charging spent_as;
  std::optional<double> epsilon;
  // More releases charged in the same way never cost less: a history within `allowed` is allowed,
  // one that contains all of `refused` is not.
  Total allowed;
  std::optional<Total> refused;
  Charging decided_as;
  EventCounts plans;  // the plans whose epsilon is plans_epsilon
  double plans_epsilon = 0;
  std::optional<PrivateSelection> selection;  // that all of these contain
  std::optional<double> of_selection = {};    // epsilon_of_selection()
};

Budget::Budget(const Ledger& ledger, AccountantFactory accountant, double delta,
               std::optional<double> target_epsilon)
    : ledger_(ledger),
      make_accountant_(std::move(accountant)),
      delta_(delta),
      target_epsilon_(target_epsilon),
      answers_(std::make_unique<Answers>(Answers{.spent = make_accountant_()})) {
  check_relation("Budget", *answers_->spent, ledger.header());
}

Budget::Budget(Budget&&) noexcept = default;
Budget& Budget::operator=(Budget&&) noexcept = default;
Budget::~Budget() = default;

// Another process may have charged a selection meanwhile.
void Budget::follow(const std::optional<PrivateSelection>& selection) const {
  if (selection == answers_->selection) return;
  Answers none;
  none.spent = accountant_for({.selection = selection}, make_accountant_);
  none.selection = selection;
  *answers_ = std::move(none);
}

double Budget::epsilon_of_plans(const History& history) const {
  follow(history.selection);
  if (history.plans == answers_->plans) return answers_->plans_epsilon;
  const std::unique_ptr<Accountant> all =
      accountant_for({.selection = history.selection}, make_accountant_);
  for (const auto& [event, count] : totals(history.plans)) all->compose(event, count);
  answers_->plans_epsilon = all->epsilon(delta_);
  answers_->plans = history.plans;
  return answers_->plans_epsilon;
}

History Budget::as_charged(History history) const {
  if (!history.whole_plan || !target_epsilon_) return history;
  history.adaptive = epsilon_of_plans(history) > *target_epsilon_;
  history.whole_plan = !history.adaptive;
  return history;
}

std::optional<double> Budget::epsilon_of_selection() const {
  const auto selection = ledger_.selection_of_run();
  if (!selection) return std::nullopt;
  if (!answers_->of_selection)
    answers_->of_selection = selection_epsilon(*selection, delta_, make_accountant_);
  return answers_->of_selection;
}

double Budget::epsilon() const {
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  if (const auto epsilon = epsilon_of_selection()) return *epsilon;
  const History history = this->history();
  follow(history.selection);
  Answers& known = *answers_;
  Total now = totals(history.charged());
  const bool same = charging_of(history) == known.spent_as;
  if (known.epsilon && now == known.composed && same) return *known.epsilon;
  known.epsilon.reset();
  // Composed events are gone: part of a reservation was not used, or the last release was not
  // planned.
  if (!within(known.composed, now) || !same) {
    known.spent = accountant_for(history, make_accountant_);
    known.spent_as = charging_of(history);
    known.composed.clear();
  }
  for (const auto& [event, count] : now) {
    known.spent->compose(event, count - known.composed[event]);
    known.composed[event] = count;
  }
  known.composed = std::move(now);
  known.epsilon = known.spent->epsilon(delta_);
  return *known.epsilon;
}

bool Budget::allows_after(const EventCounts& more) const {
  return allows(ledger_.history_after(more));
}

bool Budget::allows(const History& after) const {
  if (!target_epsilon_) return true;
  if (!ledger_.private_noise()) return false;
  if (const auto epsilon = epsilon_of_selection()) return *epsilon <= *target_epsilon_;
  const History history = as_charged(after);
  const Total total = totals(history.charged());
  follow(history.selection);
  Answers& known = *answers_;
  if (Charging now = charging_of(history); now != known.decided_as) {
    known.decided_as = std::move(now);
    known.allowed.clear();
    known.refused.reset();
  }
  if (within(total, known.allowed)) return true;
  if (known.refused && within(*known.refused, total)) return false;
  const std::unique_ptr<Accountant> all = accountant_for(history, make_accountant_);
  for (const auto& [event, count] : total) all->compose(event, count);
  const bool allowed = all->epsilon(delta_) <= *target_epsilon_;
  if (allowed) {
    known.allowed = total;
  } else {
    known.refused = total;
  }
  return allowed;
}

std::optional<double> Budget::epsilon_planned() const {
  const History history = ledger_.history();
  if (!history.within_plans) return std::nullopt;
  if (!ledger_.private_noise()) return std::numeric_limits<double>::infinity();
  if (const auto epsilon = epsilon_of_selection()) return *epsilon;
  return epsilon_of_plans(history);
}

std::string Budget::accountant() const {
  return answers_->spent->name() +
         (answers_->spent_as.adaptive ? ", of orders fixed in advance" : "");
}

Ledger::BudgetCheck Budget::admission() const {
  if (!target_epsilon_) return {};
  return [this](const History& after) { return allows(after); };
}

}  // namespace sotto
