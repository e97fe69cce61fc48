// An engine's plan, the cost of settings that follow releases, and the ledger's owner.
#include <thread>

#include "dp/accounting/adaptive_accountant.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/sampling/sampler.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/epsilon_of.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

double means(Engine& engine, double noise) {
  return engine.release_means({.ranges = {{0, 1}},
                               .values =
                                   [](std::span<const std::int64_t> units) {
                                     return std::vector(units.size(), std::vector{0.5});
                                   },
                               .noise_multiplier = noise})[0];
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("one engine's plan is in the ledger before its first step, and stopping early is free") {
  Training t;
  const Ledger ledger;
  Engine engine = t.engine(ledger, {.noise_multiplier = 2, .steps = 8, .logical_batch = 20});
  const Event event{2, Sampling::poisson, engine.sampler().rate()};
  CHECK(ledger.history().plans == EventCounts{{event, 8}});
  t.step(engine, 3);
  const PrivacyStatement report = engine.report();
  CHECK(report.epsilon == Approx(pld({{event, 3}})));
  CHECK(report.epsilon_planned == Approx(pld({{event, 8}})));
  CHECK(says(to_text(report), "composition: planned: settings"));
  CHECK(says(to_text(report), "epsilon of all that was planned: "));
}

TEST_CASE("a schedule of noise is planned step by step") {
  Training t;
  const Ledger ledger;
  Engine engine = t.engine(ledger, {.noise_multiplier = 2,
                                    .steps = 4,
                                    .logical_batch = 20,
                                    .noise_schedule = nn::Schedule::linear(1, 0.5, 4)});
  for (int step = 0; step < 4; ++step) {
    t.step(engine);
    CHECK_FALSE(ledger.history().adaptive);
    CHECK(engine.epsilon() == Approx(pld(ledger.events())));
  }
}

TEST_CASE("without a maximum number of steps the report says what epsilon rests on") {
  Training t;
  Engine engine = t.engine(Ledger(), {.noise_multiplier = 2, .logical_batch = 20});
  t.step(engine, 2);
  CHECK(says(engine.report().composition, "did not choose the last step by looking"));
  CHECK_FALSE(engine.report().epsilon_planned);
}

TEST_CASE("an engine made after a release makes the history adaptive, one made before does not") {
  for (const bool before : {true, false}) {
    CAPTURE(before);
    Training t, u;
    const Ledger ledger;
    Engine first = t.engine(ledger, {.noise_multiplier = 2, .steps = 2, .logical_batch = 20});
    const Ledger run = ledger.new_run();
    const EngineOptions options{.noise_multiplier = 4, .steps = 2, .logical_batch = 50};
    std::optional<Engine> second;
    if (before) second.emplace(u.model, u.optimizer, population, run, options);
    t.step(first, 2);
    if (!before) second.emplace(u.model, u.optimizer, population, run, options);
    u.step(*second, 2);
    CHECK(ledger.history().adaptive == !before);
    const double planned = pld(ledger.events());
    if (before) {
      CHECK(second->epsilon() == Approx(planned));
    } else {
      CHECK(second->epsilon() > planned);
      CHECK(says(to_text(second->report()), "composition: adaptive: "));
      CHECK(second->report().accountant == "rdp, of orders fixed in advance");
    }
    CHECK(first.epsilon() == second->epsilon());
    CHECK(epsilon(ledger, 1e-5) == Approx(second->epsilon()));
  }
}

TEST_CASE("means are planned where they were announced, and room is left for them") {
  Training t;
  EngineOptions options{.target_epsilon = 2, .steps = 5, .logical_batch = 20};
  const double alone = t.engine(Ledger(), options).noise_multiplier();
  options.planned_means = {{.noise_multiplier = 5, .times = 2}};
  Engine engine = t.engine(Ledger(), options);
  CHECK(engine.noise_multiplier() > 1.01 * alone);
  means(engine, 5);
  // The rest of the plan could still be chosen by looking at the means, so the whole plan counts.
  CHECK(engine.epsilon() > 1.999);
  CHECK(says(engine.report().composition, "epsilon is that of the whole plan"));
  t.step(engine, 5);
  means(engine, 5);
  CHECK_FALSE(engine.ledger().history().adaptive);
  CHECK(engine.epsilon() <= 2);
  CHECK(engine.epsilon() > 1.999);
  CHECK(throws([&] { means(engine, 5); }, "release_means: epsilon would pass 2"));
}

TEST_CASE("means that were not announced make the history adaptive") {
  Training t;
  Engine engine = t.engine(Ledger(), {.noise_multiplier = 2, .steps = 5, .logical_batch = 20});
  t.step(engine);
  means(engine, 20);
  CHECK(engine.ledger().history().adaptive);
  CHECK(engine.epsilon() > pld(engine.ledger().events()));
}

TEST_CASE("a target is kept by the filter when settings followed releases") {
  Training t, u;
  const Ledger ledger;
  {
    Engine first = t.engine(ledger, {.noise_multiplier = 4, .steps = 4, .logical_batch = 20});
    t.step(first, 4);
  }
  Engine second =
      u.engine(ledger.new_run(), {.target_epsilon = 1.5, .steps = 6, .logical_batch = 20});
  int steps = 0;
  for (; second.can_step(); ++steps) u.step(second);
  CHECK(steps == 6);  // the noise was calibrated to what the first engine left
  CHECK(second.epsilon() <= 1.5);
  CHECK(second.epsilon() > 1.499);
  CHECK(throws(
      [&] { t.engine(ledger.new_run(), {.target_epsilon = 1.5, .steps = 6, .logical_batch = 20}); },
      "Engine: nothing is left of the target epsilon 1.5: what the ledger holds"));
  CHECK(throws(
      [&] { t.engine(ledger.new_run(), {.target_epsilon = 1, .steps = 6, .logical_batch = 20}); },
      "Engine: nothing is left of the target epsilon 1: what the ledger holds"));
}

TEST_CASE("a run calibrated to what others left continues after its checkpoint") {
  const Place place;
  const std::string file = place.path() + ".model";
  const EngineOptions options{.target_epsilon = 1.5, .steps = 6, .logical_batch = 20};
  double noise = 0;
  {
    Training t, u;
    const Ledger ledger = Ledger::create(place.path());
    Engine first = t.engine(ledger, {.noise_multiplier = 4, .steps = 4, .logical_batch = 20});
    t.step(first, 4);
    Engine second = u.engine(ledger.new_run(), options);
    u.step(second, 2);
    noise = second.noise_multiplier();
    save_checkpoint(file, u.model, u.optimizer, second);
  }
  Training t;
  Engine engine = t.engine(Ledger::resume(place.path(), checkpoint_mark(file)), options);
  CHECK(engine.noise_multiplier() < noise);
  load_checkpoint(file, t.model, t.optimizer, engine);
  CHECK(engine.noise_multiplier() == noise);
  while (engine.can_step()) t.step(engine);
  CHECK(engine.steps_made() == 6);
  CHECK(engine.epsilon() <= 1.5);
}

TEST_CASE("a ledger that moves while an engine holds it loses nothing") {
  Training t;
  std::vector<Ledger> ledgers(1);
  Engine engine = t.engine(ledgers[0], {.noise_multiplier = 1, .logical_batch = 20});
  t.step(engine);
  const double one = engine.epsilon();
  ledgers.resize(100);
  const Ledger moved = std::move(ledgers[0]);
  ledgers.clear();
  t.step(engine, 4);
  CHECK(engine.epsilon() > one);
  CHECK(engine.report().releases == 5);
  CHECK(moved.releases() == 5);
  CHECK(engine.epsilon() == Approx(epsilon(moved, 1e-5)));
}

TEST_CASE("a checkpoint with another ledger than the engine's is refused") {
  const Place place;
  Training t;
  const Ledger ledger = Ledger::create(place.path());
  Engine engine = t.engine(ledger, {.noise_multiplier = 1, .logical_batch = 20});
  t.step(engine);
  const std::string file = place.path() + ".model";
  const auto save = [&](const Ledger& with) {
    save_checkpoint(file, t.model, t.optimizer, engine, with);
  };
  CHECK(throws([&] { save(Ledger::create(place.path("other"))); },
               "checkpoint: the ledger is another than the engine's"));
  CHECK(throws([&] { save(ledger.new_run()); }, "checkpoint: the ledger is another"));
  CHECK_FALSE(std::filesystem::exists(file));
  save(ledger);
  CHECK(checkpoint_mark(file).run == ledger.run_id());
}

TEST_CASE("two engines on one run are refused, with what to do") {
  Training t, u;
  const Ledger ledger;
  const EngineOptions options{.noise_multiplier = 1, .logical_batch = 20};
  {
    Engine first = t.engine(ledger, options), second = u.engine(ledger, options);
    t.step(first);
    CHECK(throws([&] { u.step(second); }, "an engine needs a run of its own (Ledger::new_run)"));
    CHECK(throws([&] { means(second, 5); }, "an engine needs a run of its own"));
    CHECK(ledger.releases() == 1);
    t.step(first);
  }
  Engine later = u.engine(ledger, options);
  u.step(later);
  CHECK(ledger.releases() == 3);
}

TEST_CASE("four models train in four threads on one ledger in memory") {
  const Ledger ledger;
  constexpr int steps = 5;
  std::vector<std::thread> threads;
  std::atomic<int> made = 0;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&made, run = ledger.new_run()] {
      Training t;
      Engine engine = t.engine(run, {.noise_multiplier = 2, .logical_batch = 20});
      t.step(engine, steps);
      made += static_cast<int>(engine.steps_made());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(made == 4 * steps);
  CHECK(ledger.releases() == 4 * steps);
  CHECK(ledger.events().size() == 1);
}

}  // namespace sotto
