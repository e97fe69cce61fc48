// The engine with every sampler, and with correlated noise.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "autograd/ops.h"
#include "core/io/atomic_file.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/engine/validation.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

TEST_CASE("every sampling meets a target in its planned steps, by the ledger") {
  for (const Sampling sampling : all_samplings) {
    CAPTURE(name(sampling));
    Training t;
    Ledger ledger(header_for(sampling));
    EngineOptions options = options_of(sampling);
    options.target_epsilon = 5;
    Engine engine = t.engine(ledger, options);
    std::int64_t made = 0;
    for (; engine.can_step(); ++made) engine.step(t.loss());
    CHECK(made == steps);
    CHECK(ledger.releases() == steps);
    CHECK(engine.epsilon() <= 5);
    CHECK(engine.epsilon() > 4.99);
    CHECK(engine.epsilon() ==
          epsilon(ledger, 1e-5,
                  accountant_factory(options.accountant, header_for(sampling).relation)));
    for (const auto& [event, count] : ledger.events()) CHECK(event.sampling == sampling);
    CHECK(to_text(engine.report()).find("sampling: ") != std::string::npos);
  }
}

TEST_CASE(
    "a sampling without a proof for accountant and relation is refused with those that have") {
  Training t;
  const auto problems = [&](Sampling sampling, AccountantKind accountant,
                            NeighboringRelation relation) {
    EngineOptions options = options_of(sampling);
    options.noise_multiplier = 1;
    options.accountant = accountant;
    return engine_problems(t.model, t.optimizer, population, options, {.relation = relation});
  };
  const auto first = problems(Sampling::balls_and_bins, AccountantKind::pld,
                              NeighboringRelation::add_or_remove_one);
  REQUIRE(first.size() == 1);
  CHECK(first[0].find("no proof for balls_and_bins") != std::string::npos);
  CHECK(first[0].find("rdp has one") != std::string::npos);
  CHECK(problems(Sampling::fixed_size, AccountantKind::pld, NeighboringRelation::add_or_remove_one)
            .size() == 1);
  CHECK(problems(Sampling::partition, AccountantKind::rdp, NeighboringRelation::add_or_remove_one)
            .size() == 1);
  CHECK(
      problems(Sampling::partition, AccountantKind::rdp, NeighboringRelation::replace_one).empty());
}

// Draws of more than 90 of 120 units at rate 1/4 are negligible; draws of more than 29 are not.
TEST_CASE("a bound that uses up delta is refused with a sufficient bound, and that one trains") {
  Training t;
  for (const bool by_target : {true, false}) {
    EngineOptions options = options_of(Sampling::truncated_poisson);
    (by_target ? options.target_epsilon : options.noise_multiplier) = 2;
    for (const std::int64_t bound : {29, 45}) {  // below the mean, and above it
      options.max_batch_size = bound;
      const auto all = engine_problems(t.model, t.optimizer, population, options);
      REQUIRE(all.size() == 1);
      CAPTURE(all[0]);
      const std::string would = "a bound of ";
      const std::size_t at = all[0].find(would);
      REQUIRE(at != std::string::npos);
      options.max_batch_size = std::stoll(all[0].substr(at + would.size()));
      CHECK(options.max_batch_size > bound);
      CHECK(options.max_batch_size < 90);
      CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
      Ledger ledger;
      Engine engine = t.engine(ledger, options);
      while (engine.can_step() && engine.steps_made() < steps) engine.step(t.loss());
      CHECK(engine.epsilon() < 3);  // and no excessive noise
      CHECK(engine.noise_multiplier() < 4);
      --options.max_batch_size;
      CHECK(engine_problems(t.model, t.optimizer, population, options).size() == 1);
    }
  }
}

TEST_CASE("a bound that no batch exceeds is no problem, and one without privacy neither") {
  Training t;
  EngineOptions options = options_of(Sampling::truncated_poisson);
  options.noise_multiplier = 1e-3;  // e^epsilon overflows
  const auto all = engine_problems(t.model, t.optimizer, population, options);
  REQUIRE(all.size() == 1);
  CHECK(all[0].find("a bound of 121 units would do") != std::string::npos);
  options.max_batch_size = 121;
  CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
  options.max_batch_size = 10;
  options.noise_multiplier = 0;
  CHECK(engine_problems(t.model, t.optimizer, population, options).empty());
}

TEST_CASE("problems of samplings and correlated noise are reported") {
  Training t;
  const auto problem = [&](const EngineOptions& options) {
    const auto all = engine_problems(t.model, t.optimizer, population, options);
    return all.size() == 1 ? all[0] : std::to_string(all.size()) + " problems";
  };
  EngineOptions plan = options_of(Sampling::planned);
  plan.noise_multiplier = 1;
  CHECK(problem(plan) == "0 problems");
  EngineOptions wrong = plan;
  wrong.noise_strategy.reset();
  CHECK(problem(wrong).find("planned batches need a noise_strategy") == 0);
  wrong = plan;
  wrong.steps = 8;
  CHECK(problem(wrong) == "a noise_strategy of 9 steps for 8 planned ones");
  wrong = plan;
  wrong.bound_schedule = nn::Schedule::exponential(0.9);
  CHECK(problem(wrong).find("a noise_strategy with clip bounds that move") == 0);
  wrong = plan;
  wrong.noise = GaussianNoise::floating_point;
  CHECK(problem(wrong) == "a noise_strategy with floating-point noise");
  wrong = plan;
  wrong.noise_schedule = nn::Schedule::exponential(0.9);
  CHECK(problem(wrong).find("a schedule of noise with planned batches") == 0);
  wrong = plan;
  wrong.loss_scaling.adjust = memory::LossScaling::Adjust::on_release;
  CHECK(problem(wrong).find("a loss scale that moves on_release with a noise_strategy") == 0);
  wrong = options_of(Sampling::poisson);
  wrong.noise_multiplier = 1;
  wrong.noise_strategy = plan.noise_strategy;
  CHECK(problem(wrong).find("a noise_strategy with poisson batches") == 0);
  wrong = options_of(Sampling::poisson);
  wrong.noise_multiplier = 1;
  wrong.max_batch_size = 50;
  CHECK(problem(wrong).find("make_sampler: 50 units per batch at most of poisson") == 0);
}

}  // namespace
}  // namespace sotto
