// Private training end to end on small data: accounting, budgets, failures in mid-step.
// File tags: [engine]
#include "dp/engine/engine.h"

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/engine/validation.h"
#include "dp/noise/mechanism.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/dataset.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

struct Training {
  Dataset data = make_digits(400, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 0.5}};
  Ledger ledger;

  Engine::Loss loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    };
  }
};

std::vector<float> weights(nn::Sequential& model) {
  return model.parameters()[0]->value.to_vector<float>();
}

TEST_CASE("training learns, and epsilon is the accountant's for the steps that ran") {
  nn::manual_seed(1);
  Training t;
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 100, .clip_bound = 1});
  double first = 0;
  double last = 0;
  for (int i = 0; i < 60; ++i) {
    const StepReport report = engine.step(t.loss());
    const double loss = report.statistics->loss_sum / static_cast<double>(report.statistics->units);
    if (i == 0) first = loss;
    last = loss;
  }
  CHECK(last < 0.7 * first);
  PldAccountant expected;
  expected.compose({.noise_multiplier = 1.0,
                    .sampling = Sampling::poisson,
                    .sampling_rate = engine.sampler().rate()},
                   60);
  CHECK(engine.epsilon() == Approx(expected.epsilon(1e-5)).epsilon(1e-12));
  CHECK(epsilon(t.ledger, 1e-5) == Approx(engine.epsilon()).epsilon(1e-12));
}

TEST_CASE("noise is rounded to a grid unless floating point is requested, at the same epsilon") {
  Training t, plain;
  EngineOptions options{.noise_multiplier = 1.0, .logical_batch = 100};
  Engine engine(t.model, t.optimizer, 400, t.ledger, options);
  CHECK(engine.mechanism().description().find("exact sampler on a grid") != std::string::npos);
  options.noise = GaussianNoise::floating_point;
  Engine other(plain.model, plain.optimizer, 400, plain.ledger, options);
  CHECK(other.mechanism().description().find("floating-point sampler") != std::string::npos);
  engine.step(t.loss());
  other.step(plain.loss());
  CHECK(engine.epsilon() == other.epsilon());
}

TEST_CASE("a target epsilon is met and not exceeded, and no step goes beyond it") {
  nn::manual_seed(2);
  Training t;
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.target_epsilon = 2.0, .steps = 25, .logical_batch = 40});
  int steps = 0;
  while (engine.can_step()) {
    engine.step(t.loss());
    ++steps;
  }
  CHECK(steps == 25);
  CHECK(engine.epsilon() <= 2.0);
  CHECK(engine.epsilon() > 1.99);
  CHECK_THROWS_AS(engine.step(t.loss()), std::invalid_argument);
  // Another engine on the same ledger has no budget left.
  CHECK(throws(
      [&] {
        Engine(t.model, t.optimizer, 400, t.ledger,
               {.target_epsilon = 2.0, .steps = 25, .logical_batch = 40});
      },
      "Engine: nothing is left of the target epsilon 2: what the ledger holds"));
}

TEST_CASE("two runs of one ledger keep a target epsilon together") {
  nn::manual_seed(2);
  const Place place;
  Ledger ledgers[] = {Ledger::create(place.path(), {}, 4), Ledger::open(place.path(), 4)};
  Training a, b;
  const EngineOptions options{.target_epsilon = 2.0, .steps = 25, .logical_batch = 40};
  Engine first(a.model, a.optimizer, 400, ledgers[0], options);
  Engine second(b.model, b.optimizer, 400, ledgers[1], options);
  for (int k = 0; k < 10; ++k) first.step(a.loss());
  CHECK(second.epsilon() == 0);
  const double alone = first.epsilon();
  second.step(b.loss());
  CHECK(second.epsilon() > alone);
  const auto finish = [](Engine& engine, Training& t) {
    while (engine.can_step()) {
      try {
        engine.step(t.loss());
      } catch (const std::invalid_argument& error) {
        CHECK(std::string(error.what()).find("record: the budget allows no more") == 0);
        CHECK_FALSE(engine.can_step());
      }
    }
    return engine.steps_made();
  };
  const std::int64_t steps = finish(second, b);
  CHECK(finish(first, a) + steps == 25);
  CHECK(first.epsilon() <= 2);
  CHECK(first.epsilon() > 1.99);
  const Ledger all = Ledger::open(place.path());
  CHECK(first.epsilon() == Approx(epsilon(all, 1e-5)).epsilon(1e-12));
}

TEST_CASE("an empty batch is an ordinary step: noise is added and charged") {
  nn::manual_seed(3);
  Training t;
  const std::vector<float> before = weights(t.model);
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 1e-9});
  const StepReport report = engine.step(t.loss());
  CHECK(report.statistics->units == 0);
  CHECK(t.ledger.releases() == 1);
  const std::vector<float> after = weights(t.model);
  std::size_t changed = 0;
  for (std::size_t i = 0; i < after.size(); ++i) changed += after[i] != before[i];
  CHECK(changed == after.size());
}

TEST_CASE("a loss that throws releases and charges nothing, and the next step is clean") {
  nn::manual_seed(4);
  Training t;
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 200, .memory = {.physical_batch = 20}});
  const std::vector<float> before = weights(t.model);
  int calls = 0;
  const Engine::Loss failing = [&](Tape& tape, std::span<const std::int64_t> rows) {
    if (++calls == 3) throw std::runtime_error("no more");
    return t.loss()(tape, rows);
  };
  CHECK_THROWS_AS(engine.step(failing), std::runtime_error);
  CHECK(t.ledger.releases() == 0);
  CHECK(engine.epsilon() == 0);
  CHECK(weights(t.model) == before);
  const StepReport report = engine.step(t.loss());
  CHECK(report.step == 1);
  CHECK(t.ledger.releases() == 1);
  CHECK(std::abs(static_cast<double>(report.statistics->units) - 200) < 60);
}

TEST_CASE("the loss must be one number for each row") {
  nn::manual_seed(5);
  Training t;
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 100});
  const Engine::Loss mean_loss = [&](Tape& tape, std::span<const std::int64_t> rows) {
    return mean(t.loss()(tape, rows));
  };
  CHECK_THROWS_AS(engine.step(mean_loss), std::invalid_argument);
  CHECK(t.ledger.releases() == 0);
}

TEST_CASE("frozen parameters neither move nor count") {
  nn::manual_seed(6);
  Dataset data = make_digits(100, 2);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 16), nn::Tanh(), nn::Linear(16, 10)};
  model[1].freeze();
  nn::Sgd optimizer(model, {.learning_rate = 0.1});
  Ledger ledger;
  Engine engine(model, optimizer, 100, ledger, {.noise_multiplier = 1.0, .logical_batch = 20});
  const std::vector<float> before = weights(model);
  const std::vector<float> head = model.parameters()[2]->value.to_vector<float>();
  engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
    const Dataset batch = data.batch(rows);
    return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
  });
  CHECK(weights(model) == before);
  CHECK(model.parameters()[2]->value.to_vector<float>() != head);
}

namespace {

// The norms of the units of one step over a whole population, in order of the units.
std::vector<double> norms_of_step(Training& t, std::int64_t units, std::int64_t physical,
                                  std::function<std::vector<std::int64_t>(std::int64_t)> rows,
                                  bool mean) {
  t.optimizer.set_learning_rate(0);
  Ledger ledger;
  Engine engine(t.model, t.optimizer, units, ledger,
                {.noise_multiplier = 1.0,
                 .delta = 1e-3,
                 .logical_batch = static_cast<double>(units),
                 .memory = {.physical_batch = physical},
                 .rows_of_unit = std::move(rows),
                 .mean_of_rows = mean});
  return engine.step(t.loss()).statistics->norms[0];
}

}  // namespace

TEST_CASE("a unit of several rows is clipped as one, however the batch is split") {
  nn::manual_seed(9);
  Training t;
  // Unit k has k rows: none, 30, 31 and 32, ...
  const auto rows = [](std::int64_t unit) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < unit; ++i) all.push_back(30 * unit + i);
    return all;
  };
  for (const bool mean : {false, true}) {
    std::vector<double> expected;
    for (std::int64_t unit = 0; unit < 5; ++unit) {
      Tape tape;
      SumSink sink;
      const std::vector<std::int64_t> own = rows(unit);
      double square = 0;
      if (!own.empty()) {
        tape.backward(t.loss()(tape, own), sink,
                      mean ? 1.0 / static_cast<double>(own.size()) : 1.0);
        for (const auto& [parameter, gradient] : sink.gradients()) {
          for (const double v : to_dtype(gradient, Dtype::f64).to_vector<double>()) square += v * v;
        }
      }
      expected.push_back(std::sqrt(square));
    }
    for (const std::int64_t physical : {1, 3, 100}) {
      const std::vector<double> norms = norms_of_step(t, 5, physical, rows, mean);
      REQUIRE(norms.size() == 5);
      for (std::size_t k = 0; k < norms.size(); ++k)
        CHECK(norms[k] == Approx(expected[k]).epsilon(1e-4).margin(1e-12));
    }
  }
}

// The sample axis of one row could be confused with the axis of size 1 that the reshape adds.
TEST_CASE("a step of one sample takes any model") {
  nn::manual_seed(10);
  Training t;
  Engine engine(t.model, t.optimizer, 400, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 400, .memory = {.physical_batch = 1}});
  const Tensor scales = full({3, 1, 10}, 0.5);
  const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
    const Dataset batch = t.data.batch(rows);
    const Var logits = t.model(tape.input(batch.inputs));
    const Var wide = reshape(logits, {1, logits.shape()[0], 10}) * tape.constant(scales);
    return cross_entropy(sum(wide, {0}), batch.targets);
  });
  CHECK(report.statistics->units == 400);
  CHECK(report.statistics->norms[0].size() == 400);
}

// Each problem alone, with all other options valid.
TEST_CASE("every problem of the settings is reported with its values") {
  nn::manual_seed(7);
  Training t;
  const auto problems = [&](const EngineOptions& options, std::int64_t population = 400) {
    return engine_problems(t.model, t.optimizer, population, options);
  };
  using Texts = std::vector<std::string>;
  CHECK(problems({.noise_multiplier = 1.0}) == Texts{});
  CHECK(problems({.target_epsilon = 1.0, .steps = 9}) == Texts{});
  CHECK(problems({}) == Texts{"give a noise multiplier or a target epsilon: neither given"});
  CHECK(problems({.noise_multiplier = 1.0, .target_epsilon = 1.0, .steps = 9}) ==
        Texts{"give a noise multiplier or a target epsilon: both given"});
  CHECK(problems({.noise_multiplier = -1.0}) == Texts{"noise multiplier -1"});
  CHECK(problems({.noise_multiplier = HUGE_VAL}) == Texts{"noise multiplier inf"});
  CHECK(problems({.target_epsilon = 0.0, .steps = 9}) == Texts{"target epsilon 0"});
  CHECK(problems({.target_epsilon = 1.0}) ==
        Texts{"a target epsilon needs the number of steps: 0"});
  CHECK(problems({.noise_multiplier = 1.0, .delta = 1}) == Texts{"delta 1 outside (0, 1)"});
  const Texts large = problems({.noise_multiplier = 1.0, .delta = 1.0 / 400});
  REQUIRE(large.size() == 1);
  CHECK(large[0].find("delta 0.0025 is not below 1 / 400 units") == 0);
  CHECK(problems({.noise_multiplier = 1.0, .delta = 0.1, .allow_large_delta = true}) == Texts{});
  CHECK(problems({.noise_multiplier = 1.0, .logical_batch = 401}) ==
        Texts{"a logical batch of 401 from 400 units"});
  CHECK(problems({.noise_multiplier = 1.0, .logical_batch = 0}) ==
        Texts{"a logical batch of 0 from 400 units"});
  CHECK(problems({.noise_multiplier = 1.0, .logical_batch = 1}, 0) ==
        Texts{"a population of 0", "a logical batch of 1 from 0 units"});
  CHECK(problems({.noise_multiplier = 1.0, .memory = {.physical_batch = 0}}) ==
        Texts{"a physical batch of 0"});
  CHECK(problems({.noise_multiplier = 1.0, .memory = {.accumulation = 0}}) ==
        Texts{"accumulation over 0 physical batches"});
  CHECK(problems({.noise_multiplier = 1.0, .memory = {.checkpoint = -1}}) ==
        Texts{"activation checkpoints at every -1 modules"});
  CHECK(problems({.noise_multiplier = 1.0, .loss_scaling = {.first = 3.0}}) ==
        Texts{"loss scale: 3 is not a power of two from 2^-24 to 2^24"});
  CHECK(problems({.noise_multiplier = 1.0, .steps = -1}) == Texts{"-1 steps"});
  CHECK(problems({.noise_multiplier = 1.0, .clip_bound = -1}) == Texts{"clip bound -1"});
  CHECK(problems({.noise_multiplier = -1.0, .clip_bound = 1e31}) ==
        Texts{"noise multiplier -1",
              "Clipper: a clip bound of 1e+31 is not from 7.89e-31 to 1.27e+30 (2^-100 to 2^100)"});
  CHECK(problems({.noise_multiplier = 1.0,
                  .clipping = {.rule = {.kind = ClipRule::Kind::auto_s, .gamma = 0}}}) ==
        Texts{"Clipper: gamma 0 is not positive"});
}

TEST_CASE("an optimizer of other parameters than the model trains is refused") {
  nn::manual_seed(7);
  Training t;
  const EngineOptions options{.noise_multiplier = 1.0};
  nn::Sequential other{nn::Linear(2, 3)};
  nn::Sgd of_other(other);
  CHECK(engine_problems(t.model, of_other, 400, options) ==
        std::vector<std::string>{
            "parameter 1.weight is trained, but the optimizer does not have it",
            "parameter 1.bias is trained, but the optimizer does not have it",
            "the optimizer has a parameter of shape (3, 2) that the model does not train",
            "the optimizer has a parameter of shape (3) that the model does not train"});
  t.model.freeze();
  const auto frozen = engine_problems(t.model, of_other, 400, options);
  CHECK(frozen.size() == 3);
  CHECK(frozen[0] == "the model has no parameter that is trained");
}

TEST_CASE("noise that has no grid is refused before the first step") {
  nn::manual_seed(7);
  Training t;
  const auto make = [&](double multiplier, GaussianNoise noise) {
    Engine(t.model, t.optimizer, 400, t.ledger, {.noise_multiplier = multiplier, .noise = noise});
  };
  CHECK(
      throws([&] { make(1e12, GaussianNoise::discretized); }, "noise grid: a noise multiplier of"));
  CHECK_NOTHROW(make(1e12, GaussianNoise::floating_point));
  CHECK(t.ledger.releases() == 0);
}

TEST_CASE("an optimizer gets the variance of the noise") {
  nn::manual_seed(7);
  Training t;
  // With betas of 0 the update is g / sqrt(max(g^2 - variance, floor)).
  nn::DpAdam optimizer(t.model, {.learning_rate = 1, .beta1 = 0, .beta2 = 0, .floor = 1e-30});
  Engine engine(t.model, optimizer, 400, t.ledger,
                {.noise_multiplier = 2.0, .logical_batch = 100, .clip_bound = 3});
  const std::vector<float> before = weights(t.model);
  engine.step(t.loss());
  const std::vector<float> after = weights(t.model);
  // The gradient is nearly all noise, of variance (2 * 3 / 100)^2, so most elements reach the floor
  // and move far; without the variance they would move by 1.
  int large = 0;
  for (std::size_t i = 0; i < after.size(); ++i) large += std::abs(after[i] - before[i]) > 2;
  CHECK(large > static_cast<int>(after.size()) / 2);
}

TEST_CASE("an engine is not made from settings with problems, and reports all of them") {
  nn::manual_seed(7);
  Training t;
  const auto make = [&] {
    Engine(t.model, t.optimizer, 400, t.ledger,
           {.noise_multiplier = -1.0, .delta = 2, .memory = {.physical_batch = 0}});
  };
  CHECK(throws(make,
               "Engine: noise multiplier -1\nEngine: delta 2 outside (0, 1)\nEngine: a "
               "physical batch of 0"));
}

TEST_CASE("dropout draws the same masks however the batch is split") {
  nn::manual_seed(8);
  Dataset data = make_digits(60, 3);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 12), nn::Tanh(), nn::Dropout(0.4),
                       nn::Linear(12, 10)};
  std::vector<std::vector<double>> sums;
  for (const std::int64_t part : {60, 7}) {
    Clipper clipper(flat_group(model.parameters(), 0.1));
    for (std::int64_t at = 0; at < 60; at += part) {
      const Dataset batch = data.slice(at, std::min<std::int64_t>(60, at + part));
      Tape tape({.private_data = true, .seed = 5, .step = 3, .first_row = at});
      clipper.add(tape, cross_entropy(model(tape.input(batch.inputs)), batch.targets));
    }
    sums.push_back(flat(clipper.clipped_sums()));
  }
  CHECK(distance(sums[0], sums[1]) < 1e-5);
}

}  // namespace
}  // namespace sotto
