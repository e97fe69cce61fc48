// Private selections in a ledger: what their line says, where it may stand, and what it costs.
#include <limits>

#include "dp/accounting/budget.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/selection_cost.h"
#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

const PrivateSelection selection{{.eta = 1, .gamma = 0.125}, {{sampled, 100}}};
constexpr double delta = 1e-5;

std::string line(const PrivateSelection& of = selection) {
  return selection_line({some_run, {}, 0, {}}, of);
}

std::string failure(const std::vector<std::string>& lines) {
  try {
    parse_ledger(file_of(lines), "f");
    return "";
  } catch (const SystemFailure& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a selection's line reads back, charges a run, and is read by whoever opens the file") {
  const LedgerContents read = parse_ledger(file_of({header, line()}), "f").contents;
  CHECK(read.history().selection == selection);
  CHECK(read.events() == selection.run);
  const Place place;
  {
    Ledger ledger = Ledger::create(place.path());
    ledger.select(selection);
  }
  const Ledger again = Ledger::open(place.path());
  CHECK(again.history().selection == selection);
  CHECK(epsilon(again, delta) == selection_epsilon(selection, delta));
}

TEST_CASE("a selection is the first release of its ledger, and the only one") {
  Ledger used;
  used.record(sampled, 0);
  CHECK(throws([&] { used.select(selection); }, "a private selection after 1 releases"));
  Ledger ledger;
  ledger.select(selection);
  CHECK(throws([&] { ledger.select(selection); }, "a private selection after 100 releases"));
  Ledger other = ledger.new_run();
  CHECK(throws([&] { other.select(selection); }, "a private selection after 100 releases"));
  CHECK_FALSE(other.plan({{everybody, 1}}));
  CHECK(failure({header, reserve(1, 0), line()}).find("ledger: f:3: a private selection") == 0);
  CHECK(failure({header, line(), line()}).find("ledger: f:3: a private selection") == 0);
}

TEST_CASE("a selection out of range is refused, in memory and in a file") {
  for (const PrivateSelection& wrong :
       {PrivateSelection{{1, 0}, selection.run}, PrivateSelection{{1, 1.5}, selection.run},
        PrivateSelection{{-2, 0.5}, selection.run}, PrivateSelection{{1, 1e-9}, selection.run},
        PrivateSelection{{1, 0.5}, {}}, PrivateSelection{{1, 0.5}, {{sampled, 0}}}}) {
    Ledger ledger;
    CHECK_THROWS_AS(ledger.select(wrong), std::invalid_argument);
    CHECK(ledger.releases() == 0);
    CHECK(failure({header, line(wrong)}).find("ledger: f:2: ") == 0);
  }
  std::string text = line();
  text.replace(text.find("0.125"), 5, "\"a\"");
  CHECK(failure({header, text}) == "ledger: f:2: gamma is not a number");
}

TEST_CASE("a number of runs without end is refused before it is charged, and read where it was") {
  const PrivateSelection endless{TruncatedNegativeBinomial::with_mean(1000, -0.5), selection.run};
  Ledger ledger;
  CHECK(throws([&] { ledger.select(endless); }, "private selection: a number of runs with eta"));
  CHECK(ledger.releases() == 0);
  CHECK(failure({header, line(endless)}).empty());
}

TEST_CASE("releases after a selection are composed with one of its runs") {
  Ledger ledger;
  ledger.select(selection);
  Ledger more = ledger.new_run();
  for (std::uint64_t draw = 0; draw < 50; ++draw) more.record(sampled, draw);
  const PrivateSelection longer{selection.runs, {{sampled, 150}}};
  const SelectionCost cost = selection_cost(selection, accountant_factory());
  auto one = make_accountant();
  one->compose(sampled, 150);
  CHECK(epsilon(ledger, delta) == cost.epsilon + one->epsilon(delta / cost.runs));
  CHECK(epsilon(ledger, delta) < selection_epsilon(longer, delta));
  more.record(everybody, 50);  // of another kind, chosen when the best run was known
  CHECK(ledger.history().adaptive);
  const double adaptive = epsilon(ledger, delta);
  CHECK(adaptive > cost.epsilon);
  ledger.mark_not_private("a test");
  CHECK(epsilon(ledger, delta) == std::numeric_limits<double>::infinity());
}

TEST_CASE("a budget counts a selection, also one that is written after it was first asked") {
  Ledger ledger;
  const Budget budget(ledger, accountant_factory(), delta, 0.8);
  CHECK(budget.epsilon() == 0);
  CHECK(budget.allows_after({{sampled, 100}}));
  ledger.select(selection);
  CHECK(budget.epsilon() == epsilon(ledger, delta));
  CHECK(budget.epsilon_planned() == budget.epsilon());
  CHECK(budget.epsilon() > 0.8);
  CHECK_FALSE(budget.allows_after({{sampled, 1}}));
}

TEST_CASE("a run's ledger refuses plans and releases beyond those of its selection") {
  Ledger run = Ledger::of_candidate({}, {selection.runs, {{sampled, 2}}});
  CHECK(throws([&] { run.plan({{sampled, 3}}); }, "plan: 3 releases"));
  CHECK(throws([&] { run.plan({{everybody, 1}}); }, "may make 0"));
  CHECK(run.plan({{sampled, 2}}));
  run.record(sampled, 0);
  CHECK_THROWS_AS(run.record(everybody, 1), std::invalid_argument);
  Ledger other = run.new_run();
  other.record(sampled, 0);
  CHECK(throws([&] { run.record(sampled, 1); }, "record: 3 releases"));
  CHECK(throws([&] { run.select(selection); }, "within a run of another one"));
}

}  // namespace sotto
