// How train() begins on the files of earlier runs, beside other processes, and how it ends.
#include <filesystem>

#include "core/io/file_lock.h"
#include "dp/engine/train.h"
#include "dp/engine/training_checkpoint.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Files of a training, and the lines that it told.
struct Told {
  Place place;
  std::vector<std::string> lines = {};

  TrainOptions options(std::int64_t planned, double noise_multiplier = 2) {
    return {.engine = {.noise_multiplier = noise_multiplier,
                       .delta = 1e-4,
                       .steps = planned,
                       .logical_batch = 30},
            .save = place.path("state"),
            .tell = [this](const std::string& line) { lines.push_back(line); }};
  }
  PrivacyStatement train(Training& t, const TrainOptions& options, const OnStep& on_step = {}) {
    lines.clear();
    return sotto::train(t.model, t.optimizer, t.data, place.path(), options, nn::CrossEntropyLoss{},
                        on_step);
  }
};

// Spends more than a target of 3 allows.
void spend_the_rest(const std::string& ledger) {
  Ledger other = Ledger::open(ledger);
  for (std::uint64_t draw = 0; draw < 20; ++draw) other.record(everybody, draw);
}

}  // namespace

TEST_CASE("a name is trained by one at a time, whoever else trains it leaves its files alone") {
  Told run;
  const TrainOptions options = run.options(2);
  const auto lock = lock_name(options.save);
  Training t;
  CHECK(throws<SystemFailure>([&] { run.train(t, options); }, "another training uses"));
  CHECK(throws<SystemFailure>(
      [&] { train(t.model, t.optimizer, t.data, Ledger(), options, nn::CrossEntropyLoss{}); },
      "another training uses"));
  CHECK_FALSE(std::filesystem::exists(run.place.path()));
  CHECK_FALSE(std::filesystem::exists(options.save));
}

TEST_CASE("a training holds its name from its first step to its end") {
  Told run;
  const TrainOptions options = run.options(2);
  Training t, other;
  bool refused = false;
  run.train(t, options, [&](const StepReport& report, const Engine&) {
    if (report.step == 1)
      refused = throws<SystemFailure>([&] { run.train(other, options); }, "another training uses");
    return true;
  });
  CHECK(refused);
  CHECK_FALSE(std::filesystem::exists(options.save + ".lock"));
  run.train(other, options);
  CHECK(other.weights() == t.weights());
}

TEST_CASE("a budget that other runs spend ends a training, which is saved") {
  Told run;
  TrainOptions options = run.options(400);
  options.engine.noise_multiplier = {};
  options.engine.target_epsilon = 3;
  Training t;
  const PrivacyStatement statement =
      run.train(t, options, [&](const StepReport& report, const Engine&) {
        if (report.step == 3) spend_the_rest(run.place.path());
        return true;
      });
  REQUIRE(run.lines.size() == 1);
  const std::int64_t made = checkpoint_mark(options.save).releases;
  CHECK(run.lines[0].starts_with(fmt::format("ended after step {} of 400: the target", made)));
  CHECK(made >= 3);
  CHECK(made < 400);
  CHECK(statement.releases == made + 20);
  // What was trained is there again.
  Training again;
  run.train(again, options);
  CHECK(again.weights() == t.weights());
  REQUIRE(run.lines.size() == 1);
  CHECK(run.lines[0].starts_with(
      fmt::format("nothing left to do: resumed at step {} of 400: the target", made)));
}

TEST_CASE("a step that the budget refuses is no step, and any other error is one") {
  const Place place;
  Training t;
  EngineOptions options = options_of(Sampling::poisson);
  options.target_epsilon = 3;
  Engine engine = t.engine(Ledger::create(place.path(), {}, 1), options);
  REQUIRE(engine.next_step(t.loss()));
  CHECK(throws([&] { engine.next_step([](Tape&, auto) -> Var { fail("a loss of ours"); }); },
               "a loss of ours"));
  spend_the_rest(place.path());
  REQUIRE(engine.can_step());
  CHECK_FALSE(engine.next_step(t.loss()));
  CHECK_FALSE(engine.can_step());
  CHECK(engine.steps_made() == 1);
  CHECK(engine.ledger().run_releases() == 1);
  CHECK_FALSE(engine.next_step(t.loss()));
  CHECK_THROWS_AS(engine.step(t.loss()), std::invalid_argument);
}

TEST_CASE("a training that is done says so, and what the rerun changed") {
  Told run;
  Training t;
  run.train(t, run.options(2));
  CHECK(run.lines.empty());
  Training again;
  again.optimizer.set_learning_rate(0.5);
  run.train(again, run.options(2));
  REQUIRE(run.lines.size() == 2);
  CHECK(run.lines[0] ==
        "resumed, but optimizer's group is rate 0.5 momentum instead of rate 0.1 "
        "momentum");
  CHECK(run.lines[1] == "nothing left to do: resumed at step 2 of 2");
  run.train(again, run.options(3));
  CHECK(run.lines == std::vector<std::string>{"resumed, but steps is 3 instead of 2"});
}

TEST_CASE("a training stands on its checkpoint's clip bound, and on no other") {
  Told run;
  Training t;
  run.train(t, run.options(2));
  TrainOptions options = run.options(4);
  options.engine.clip_bound = 2;
  CHECK(throws([&] { run.train(t, options); }, "clip bound is 2"));
}

TEST_CASE("a training that died before it standardised does so, whatever was released before") {
  for (const bool released : {false, true}) {
    CAPTURE(released);
    Told run;
    TrainOptions options = run.options(2);
    const auto columns = [&](auto&& f) {
      nn::manual_seed(1);
      nn::Sequential model{nn::Standardize(784), nn::Linear(784, 10)};
      nn::Sgd optimizer(model, {.learning_rate = 0.1});
      auto& layer = dynamic_cast<nn::Standardize&>(model[0]);
      options.standardize = StandardizeOptions{.layer = &layer, .ranges = {{5, {0, 1}}}};
      f(model, optimizer);
      return layer.deviation->value.at({5});
    };
    Dataset data = make_digits(population, 1);
    data.inputs = reshape(data.inputs, {population, 784});
    columns([&](auto& model, auto& optimizer) {
      Ledger ledger = Ledger::create(run.place.path());
      if (released) ledger.record(everybody, 0);
      EngineOptions engine_options = options.engine;
      engine_options.planned_means = {planned_means(*options.standardize)};
      const Engine engine(model, optimizer, data, ledger, engine_options);
      save_checkpoint(options.save, model, optimizer, engine);
    });
    const auto train_on = [&](auto& model, auto& optimizer) {
      train(model, optimizer, data, run.place.path(), options, nn::CrossEntropyLoss{});
    };
    const double deviation = columns(train_on);
    CHECK(deviation != 1);
    CHECK(checkpoint_mark(options.save).releases == 3 + (released ? 1 : 0));
    CHECK(columns(train_on) == deviation);
    CHECK(checkpoint_mark(options.save).releases == 3 + (released ? 1 : 0));
  }
}

}  // namespace sotto
