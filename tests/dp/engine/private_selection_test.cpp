// Private selection among settings: what it charges and when, which run wins, and what is refused.
#include "dp/engine/private_selection.h"

#include <cmath>
#include <optional>
#include <vector>

#include "core/random/secret_random.h"
#include "dp/accounting/ledger_epsilon.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr double delta = 1e-5;
constexpr NeighboringRelation relation = NeighboringRelation::add_or_remove_one;
const PrivateSelection selection{{.eta = 1, .gamma = 0.2}, {{sampled, 5}}};

// The candidate of a setting that releases nothing and has this score.
Candidate scored(double score) { return {.score = score}; }

EngineOptions private_options() { return {.target_epsilon = 2, .steps = 3, .logical_batch = 20}; }

// The index of a run's setting in `rates` decides its learning rate; the score is that of its bias.
Candidate trained(double rate, const Ledger& run, const EngineOptions& options) {
  Training t;
  t.optimizer.set_learning_rate(rate);
  Engine engine = t.engine(run, options);
  while (engine.can_step()) t.step(engine);
  return {.released = {.tensors = {{"bias", clone(t.model.parameters()[1]->value)}}},
          .score = rate};
}

}  // namespace

TEST_CASE("a selection is in the ledger before its first run, and is its whole cost") {
  const EngineOptions one = options_of_run(population, private_options(),
                                           TruncatedNegativeBinomial::with_mean(3), relation);
  const PrivateSelection of{TruncatedNegativeBinomial::with_mean(3),
                            planned_releases(population, one, relation)};
  CHECK(total_releases(of.run) == 3);
  Ledger ledger;
  std::vector<double> charged;
  const std::vector<double> rates = {0.1, 0.2, 0.3, 0.4};
  const Selected best =
      select_privately(ledger, 4, of, [&](std::int64_t setting, const Ledger& run) {
        charged.push_back(epsilon(ledger, delta));
        return trained(rates[static_cast<std::size_t>(setting)], run, one);
      });
  for (const double at_run : charged) CHECK(at_run == selection_epsilon(of, delta));
  CHECK(epsilon(ledger, delta) == selection_epsilon(of, delta));
  CHECK(epsilon(ledger, delta) <= 2);
  CHECK(epsilon(ledger, delta) >= 1.98);  // and no more noise than that takes
  CHECK(ledger.population() == population);
  CHECK(best.candidate.score == rates[static_cast<std::size_t>(best.setting)]);
  CHECK(best.candidate.released.tensors.at("bias").numel() == 10);
}

TEST_CASE("the best score wins, of equal ones the first, and NaN is the worst") {
  const double nan = std::nan("");
  const auto winner = [&](std::vector<double> scores) {
    std::size_t run = 0;
    Ledger ledger;
    std::vector<double> seen;
    std::optional<Selected> best;
    for (std::uint64_t seed = 1; !best || seen.size() != scores.size(); ++seed) {
      run = 0;
      seen.clear();
      ledger = Ledger();
      best = select_privately(
          ledger, 1, selection,
          [&](std::int64_t, const Ledger&) {
            seen.push_back(scores[run % scores.size()]);
            Candidate candidate = scored(scores[run % scores.size()]);
            candidate.released.metadata["run"] = std::to_string(run++);
            return candidate;
          },
          SecretRandom::insecure_seeded(seed));
    }
    return best->candidate.released.metadata.at("run");
  };
  CHECK(winner({1, 3, 2}) == "1");
  CHECK(winner({2, 1, 2}) == "0");
  CHECK(winner({nan, -1}) == "1");
  CHECK(winner({-1, nan}) == "0");
  CHECK(winner({nan, nan, nan}) == "0");
}

TEST_CASE("a candidate that cannot be trained loses, and alone it is the search's error") {
  const auto search = [](std::uint64_t seed, bool others) {
    Ledger ledger;
    int runs = 0;
    const auto candidate = [&](std::int64_t setting, const Ledger&) {
      ++runs;
      check(setting > 0 && others, "weights of setting {} are infinite", setting);
      return scored(std::nan(""));
    };
    const Selected best =
        select_privately(ledger, 2, selection, candidate, SecretRandom::insecure_seeded(seed));
    return best.setting == 1 && best.candidate.released.metadata.empty() && runs > 0;
  };
  int won = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    try {
      won += search(seed, true) ? 1 : 0;
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()) == "weights of setting 0 are infinite");
    }
    CHECK(throws([&] { search(seed, false); }, "are infinite"));
  }
  CHECK(won > 5);
}

// P[setting wins] for uniform settings whose scores are their indices: sum_k P[K = k]
// (((s + 1) / n)^k - (s / n)^k). At five standard deviations, with a fixed seed.
TEST_CASE("settings win as often as the best of a random number of uniform ones") {
  constexpr int searches = 4000, settings = 4;
  SecretRandom seeds = SecretRandom::insecure_seeded(5);
  std::vector<int> wins(settings);
  for (int i = 0; i < searches; ++i) {
    Ledger ledger;
    const Selected best = select_privately(
        ledger, settings, selection,
        [](std::int64_t setting, const Ledger&) { return scored(static_cast<double>(setting)); },
        SecretRandom::insecure_seeded(seeds.word()));
    ++wins[static_cast<std::size_t>(best.setting)];
  }
  for (int s = 0; s < settings; ++s) {
    double p = 0;
    for (int k = 1; k < 500; ++k)
      p += selection.runs.probability(k) *
           (std::pow((s + 1.0) / settings, k) - std::pow(double{1.0 * s} / settings, k));
    CAPTURE(s, p);
    CHECK(std::abs(wins[static_cast<std::size_t>(s)] - searches * p) <=
          5 * std::sqrt(searches * p * (1 - p)));
  }
}

TEST_CASE("a run that would release more than was charged is refused when its engine is made") {
  Ledger ledger;
  const EngineOptions charged{.noise_multiplier = 2, .steps = 3, .logical_batch = 20};
  for (EngineOptions more : {charged, charged, charged, charged}) {
    static int which = 0;
    ++which;
    if (which == 1) more.steps = 4;
    if (which == 2) more.noise_multiplier = 1.9;
    if (which == 3) more.logical_batch = 21;
    if (which == 4) more.planned_means = {{}};
    CAPTURE(which);
    ledger = Ledger();
    const auto search = [&] {
      select_privately(ledger, 1, {selection.runs, planned_releases(population, charged, relation)},
                       [&](std::int64_t, const Ledger& run) {
                         Training t;
                         Engine engine = t.engine(run, more);
                         FAIL("made");
                         return Candidate();
                       });
    };
    CHECK(throws(search, "of which a run of this private selection may make"));
  }
}

TEST_CASE("a search that fails stays charged, and no second one may follow it") {
  Ledger ledger;
  const auto failing = [](std::int64_t, const Ledger&) -> Candidate {
    throw std::runtime_error("no memory");
  };
  CHECK_THROWS_AS(select_privately(ledger, 2, selection, failing), std::runtime_error);
  CHECK(epsilon(ledger, delta) == selection_epsilon(selection, delta));
  CHECK(throws([&] { select_privately(ledger, 2, selection, failing); },
               "a private selection after 5 releases: it must be the first of its ledger"));
  Ledger fresh;
  CHECK_THROWS_AS(select_privately(fresh, 0, selection, failing), std::invalid_argument);
  CHECK(fresh.releases() == 0);
}

TEST_CASE("runs on other data than the ledger's, or with seeded noise, are not hidden") {
  Ledger ledger;
  ledger.set_population(population + 1);
  const EngineOptions one{.noise_multiplier = 2, .steps = 3, .logical_batch = 20};
  const PrivateSelection of{selection.runs, planned_releases(population, one, relation)};
  const auto search = [&](Ledger& in) {
    select_privately(in, 1, of,
                     [&](std::int64_t, const Ledger& run) { return trained(0.1, run, one); });
  };
  CHECK_THROWS_AS(search(ledger), std::invalid_argument);
  Ledger marked;
  select_privately(marked, 1, of, [&](std::int64_t, const Ledger& run) {
    Ledger own = run;
    own.mark_not_private("a test");
    return trained(0.1, run, one);
  });
  CHECK(marked.reasons() == std::vector<std::string>{"a test"});
}

TEST_CASE("a run's statement has the epsilon of the selection") {
  const EngineOptions one{.noise_multiplier = 2, .steps = 3, .logical_batch = 20};
  const PrivateSelection of{selection.runs, planned_releases(population, one, relation)};
  const double whole = selection_epsilon(of, delta);
  Ledger ledger;
  select_privately(ledger, 1, of, [&](std::int64_t, const Ledger& run) {
    Training t;
    Engine engine = t.engine(run, one);
    t.step(engine);
    const PrivacyStatement statement = engine.report();
    CHECK(statement.epsilon == whole);
    CHECK(statement.epsilon_planned == whole);
    CHECK(engine.epsilon() == whole);
    CHECK(epsilon(run, delta) == whole);
    CHECK(statement.composition.find("one run of a private selection, the best of 5 runs") == 0);
    return scored(0);
  });
}

TEST_CASE("an engine's statement after a selection tells of it") {
  Ledger ledger;
  select_privately(ledger, 1, selection, [](std::int64_t, const Ledger&) { return scored(0); });
  Training t;
  Engine engine =
      t.engine(ledger.new_run(), {.noise_multiplier = 2, .steps = 3, .logical_batch = 20});
  CHECK(engine.report().composition.find("a private selection, the best of 5 runs") !=
        std::string::npos);
  CHECK(engine.report().epsilon == epsilon(ledger, delta));
}

}  // namespace sotto
