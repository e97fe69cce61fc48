// A target under every order of plans, releases and questions, of several runs of one ledger.
// File tags: [sanitized]
#include "dp/accounting/budget.h"

#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "dp/accounting/adaptive_accountant.h"
#include "tests/support/catch.h"
#include "tests/support/epsilon_of.h"
#include "tests/support/ledger_files.h"

namespace sotto {
namespace {

// Runs that share a ledger, each with a budget of the same target.
class Runs {
 public:
  Runs(std::uint64_t seed, AccountantKind kind, const std::string& path)
      : random_(seed), kind_(kind), target_(std::exp(number(-1, 4))) {
    const Ledger first = path.empty() ? Ledger() : Ledger::create(path, {}, 1 + below(20));
    for (std::size_t k = 0; k < 3; ++k) {
      ledgers_.push_back(k == 0 ? first : first.new_run());
      budgets_.push_back(budget(ledgers_.back()));
    }
  }

  // Plans, releases, settles or asks, and checks that nothing passes the target. There is no plan
  // after a release: the first acts make none.
  void act() {
    constexpr int before_releases = 14;
    const auto run = static_cast<std::size_t>(below(3));
    Ledger& ledger = ledgers_[run];
    const int what = below(acts_++ < before_releases ? 7 : 10);
    if (what < 3) ledger.plan(some());
    if (what == 3) ledger.settle();
    if (what > 3 && what < 7) ask(run);
    if (what >= 7) release(run);
    for (const Budget& kept : budgets_) REQUIRE(kept.epsilon() <= target_);
    REQUIRE(budgets_[run].epsilon() == budget(ledger).epsilon());
    releases_ = ledger.releases();
  }

  std::int64_t releases() const { return releases_; }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  double number(double low, double high) {
    return std::uniform_real_distribution(low, high)(random_);
  }
  Budget budget(const Ledger& ledger) const {
    return {ledger, accountant_factory(kind_, NeighboringRelation::add_or_remove_one), delta,
            target_};
  }
  Event event() {
    const double noise = std::vector{0.4, 1.0, 3.0, 20.0}[static_cast<std::size_t>(below(4))];
    if (below(2) == 0) return {.noise_multiplier = noise};
    return {.noise_multiplier = noise, .sampling = Sampling::poisson, .sampling_rate = 0.02};
  }
  EventCounts some() {
    EventCounts counts;
    for (int kinds = 1 + below(3); kinds > 0; --kinds)
      add_releases(counts, event(), 1 + below(below(2) == 0 ? 5 : 300));
    return counts;
  }
  // Answers that are kept are those of a budget that keeps none: for what was just allowed before,
  // and up to the largest number that is allowed now.
  void ask(std::size_t run) {
    const auto allowed = [&](const EventCounts& more) {
      const bool answer = budgets_[run].allows_after(more);
      REQUIRE(answer == budget(ledgers_[run]).allows_after(more));
      return answer;
    };
    EventCounts& asked = asked_[run];
    if (!asked.empty()) allowed(asked);
    asked = some();
    std::int64_t& count = asked.back().second;
    for (std::int64_t step = 1 << 10; step > 0; step /= 2) {
      count += step;
      if (!allowed(asked)) count -= step;
    }
  }
  void release(std::size_t run) {
    const Event next = event();
    try {
      for (int times = 1 + below(40); times > 0; --times)
        ledgers_[run].record(next, ledgers_[run].next_draw(), budgets_[run].admission());
    } catch (const std::invalid_argument& error) {
      REQUIRE(std::string(error.what()).starts_with("record: the budget allows no more"));
    }
  }

  std::mt19937_64 random_;
  AccountantKind kind_;
  double target_;
  std::vector<Ledger> ledgers_;
  std::vector<Budget> budgets_;
  std::array<EventCounts, 3> asked_;
  std::int64_t releases_ = 0;
  int acts_ = 0;
};

// Returns the number of releases.
std::int64_t live(std::uint64_t seed, int acts, AccountantKind kind) {
  CAPTURE(seed);
  const Place place;
  Runs runs(seed, kind, seed % 4 == 0 ? place.path() : "");
  for (int k = 0; k < acts; ++k) runs.act();
  return runs.releases();
}

}  // namespace

TEST_CASE("no order of plans, releases and questions of several runs passes their target") {
  std::int64_t releases = 0;
  for (std::uint64_t seed = 116; seed < 121; ++seed)
    releases += live(seed, 25, AccountantKind::rdp);
  CHECK(releases > 50);
}

TEST_CASE("no order of hundreds passes a target", "[nightly]") {
  for (std::uint64_t seed = 200; seed < 400; ++seed) live(seed, 60, AccountantKind::rdp);
  for (std::uint64_t seed = 2000; seed < 2005; ++seed) live(seed, 40, AccountantKind::pld);
}

TEST_CASE("what was allowed before another run's plan is decided anew") {
  const Event step{.noise_multiplier = 1, .sampling = Sampling::poisson, .sampling_rate = 0.1};
  const EventCounts plan{{{.noise_multiplier = 1e3}, 1}, {step, 600}}, released{{step, 300}};
  const std::pair<Event, std::int64_t> other{{.noise_multiplier = 0.3}, 3000};
  const auto spent = [&](const EventCounts& plans) {
    return epsilon_of(released, AdaptiveAccountant(NeighboringRelation::add_or_remove_one, plans));
  };
  EventCounts both = plan;
  both.push_back(other);
  const double target = std::midpoint(spent(plan), spent(both));
  REQUIRE(spent(plan) < target);
  // The plan is not begun in its order and costs more than the target, so that shares decide.
  REQUIRE(pld(plan) > target);
  Ledger first;
  Ledger second = first.new_run();
  CHECK(first.plan(plan));
  const Budget budget(first, accountant_factory(), delta, target);
  CHECK(budget.allows_after(released));
  CHECK(second.plan({other}));
  CHECK_FALSE(budget.allows_after(released));
}

}  // namespace sotto
