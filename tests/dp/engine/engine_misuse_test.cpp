// Common mistakes of users: each is an error that says what to do, and costs nothing.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "core/devices.h"
#include "core/io/safetensors.h"
#include "core/ranks/one_rank.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr const char* advice = "return one loss for each row; the engine averages";

// A user's module, whose visit() may omit its hidden layer.
struct Network final : nn::Module {
  explicit Network(bool shows_all) : shows_all(shows_all) {}
  Var forward(const Var& x) override { return last(tanh(hidden(flatten(x, 1)))); }
  void visit(const nn::Visitor& visitor) override {
    if (shows_all) visitor("hidden", hidden);
    visitor("last", last);
  }

  bool shows_all;
  nn::Linear hidden{784, 4};
  nn::Linear last{4, 10};
};

// A training of such a network, whose steps may be refused.
struct Attempt {
  explicit Attempt(bool shows_all = true) : model(shows_all) {}

  Engine::Loss loss() { return loss_of(data, model); }
  Engine engine(EngineOptions options = {}) {
    options.noise_multiplier = 1;
    options.logical_batch = population;
    return Engine(model, optimizer, population, ledger, options);
  }
  // Returns whether the step fails with this text, and nothing is charged for it.
  bool refused(Engine& engine, const Engine::Loss& loss, std::string_view text) {
    const std::int64_t before = ledger.releases();
    return throws([&] { engine.step(loss); }, text) && ledger.releases() == before;
  }

  Dataset data = (nn::manual_seed(3), make_digits(population, 1));
  Network model;
  nn::Sgd optimizer{model, {.learning_rate = 0.1}};
  Ledger ledger;
};

TEST_CASE("one of several launched processes trains alone only if it says so") {
  Attempt t;
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    setenv(variable, "1", 1);
    t.engine();
    setenv(variable, "2", 1);
    CHECK(throws([&] { t.engine(); }, "one of 2 processes of"));
    EngineOptions alone;
    alone.ranks = std::make_shared<OneRank>();
    t.engine(alone);
    unsetenv(variable);
  }
}

TEST_CASE("a mean over the batch is refused with what to return instead") {
  Attempt t;
  Engine engine = t.engine();
  const Engine::Loss loss = t.loss();
  const auto of = [&](Var (*reduce)(const Var&)) {
    return [&loss, reduce](Tape& tape, std::span<const std::int64_t> rows) {
      return reduce(loss(tape, rows));
    };
  };
  CHECK(t.refused(engine, of([](const Var& x) { return mean(x); }), advice));
  CHECK(t.refused(engine, of([](const Var& x) { return sum(x); }), advice));
  CHECK(t.refused(engine, of([](const Var& x) { return mean(x, {0}, true); }), advice));
  CHECK(t.refused(engine, of([](const Var& x) { return unsqueeze(x, 1); }), advice));
  CHECK(t.refused(engine, of([](const Var& x) { return x.tape().constant(zeros({})); }), advice));
  CHECK_NOTHROW(engine.step(loss));
}

TEST_CASE("a child that visit() omits is named") {
  Attempt t(false);
  Engine engine = t.engine();
  CHECK(t.refused(engine, t.loss(),
                  "parameter of shape (4) that is in no clip group: it belongs to a Linear of "
                  "the model, which visit() does not show"));
}

TEST_CASE("a parameter that was unfrozen since the engine was made is named") {
  Attempt t;
  t.model.hidden.freeze();
  nn::Sgd optimizer(t.model, {.learning_rate = 0.1});
  Engine engine(t.model, optimizer, population, t.ledger,
                {.noise_multiplier = 1, .logical_batch = 9});
  t.model.hidden.unfreeze();
  CHECK(t.refused(engine, t.loss(), "it belongs to hidden; groups are of what visit() shows"));
}

TEST_CASE("a parameter that is replaced or changed while the engine lives is found") {
  Attempt t;
  Engine engine = t.engine();
  engine.step(t.loss());
  Parameter& bias = *t.model.last.bias;
  const Tensor before = bias.value;
  bias.value = zeros({11});
  CHECK(t.refused(engine, t.loss(), "parameter last.bias was f32 (10) on cpu when"));
  bias.value = to_dtype(before, Dtype::f64);
  CHECK(t.refused(engine, t.loss(), "and is f64 (10) on cpu"));
  bias.value = Tensor();
  CHECK(t.refused(engine, t.loss(), "and is undefined"));
  bias.value = before;
  bias.trainable = false;
  CHECK(t.refused(engine, t.loss(), "parameter last.bias was frozen since"));
  bias.trainable = true;
  CHECK_NOTHROW(engine.step(t.loss()));
  t.model.last.weight = std::make_unique<Parameter>(zeros({10, 4}));
  CHECK(t.refused(engine, t.loss(), "parameter last.weight was replaced or removed since"));
}

TEST_CASE("weights that are not finite stop training before more is spent") {
  for (const float bad : {std::nanf(""), INFINITY}) {
    Attempt t;
    Engine engine = t.engine();
    engine.step(t.loss());
    Tensor& weight = t.model.hidden.weight->value;
    std::vector<float> values = weight.to_vector<float>();
    values[1234] = bad;
    copy_into(Tensor::from(values, weight.shape()), weight);
    CHECK(t.refused(engine, t.loss(), "parameter hidden.weight holds NaN or infinity"));
  }
}

TEST_CASE("weights that were assigned are checked before the next step, on every device", "[gpu]") {
  for (const DeviceInfo& info : devices()) {
    INFO(info.name);
    const Dataset data = make_digits(population, 1);
    nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
    model.to(info.device);
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    Ledger ledger;
    Engine engine(model, optimizer, population, ledger,
                  {.noise_multiplier = 1, .logical_batch = population});
    const auto step = [&] {
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        const Dataset batch = data.batch(rows);
        return cross_entropy(model(tape.input(batch.inputs.to(info.device))), batch.targets);
      });
    };
    for (int k = 0; k < 3; ++k) step();
    model.parameters()[1]->value = full({10}, NAN).to(info.device);
    CHECK(throws(step, "parameter 1.bias holds NaN or infinity"));
    CHECK(ledger.releases() == 3);
  }
}

TEST_CASE("a row of two units is refused, of the population or of a batch") {
  Attempt t;
  const auto make = [&](std::int64_t units, double batch) {
    return Engine(t.model, t.optimizer, units, t.ledger,
                  {.noise_multiplier = 1,
                   .delta = 1e-9,
                   .logical_batch = batch,
                   .rows_of_unit = [](std::int64_t unit) {
                     return std::vector{unit % 40, unit % 40};
                   }});
  };
  CHECK_NOTHROW(make(40, 40));
  CHECK(throws([&] { make(41, 41); }, "row 0 is of unit 0 and of unit 40"));
}

TEST_CASE("a row of two units of a batch is refused where the population is too large to walk") {
  Attempt t;
  constexpr std::int64_t units = (1 << 20) + 1;
  Engine engine(t.model, t.optimizer, units, t.ledger,
                {.noise_multiplier = 1,
                 .delta = 1e-9,
                 .logical_batch = 64,
                 .rows_of_unit = [](std::int64_t unit) { return std::vector{unit % 2}; }});
  CHECK(t.refused(engine, t.loss(), "a row belongs to one unit"));
}

TEST_CASE("of two threads in one engine, one gets an error, and nothing is lost") {
  Attempt t;
  Engine engine = t.engine();
  std::atomic<bool> inside = false, tried = false;
  const Engine::Loss loss = t.loss();
  std::thread first([&] {
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      inside = true;
      inside.notify_one();
      tried.wait(false);
      return loss(tape, rows);
    });
  });
  inside.wait(false);
  constexpr const char* text = "another thread is in a call of the same object";
  CHECK(throws([&] { engine.step(loss); }, text));
  CHECK(throws([&] { engine.release_means({}); }, text));
  CHECK(throws([&] { engine.load_state({}); }, text));
  CHECK(throws([&] { engine.state(); }, text));
  CHECK(throws([&] { engine.report(); }, text));
  CHECK(throws([&] { engine.epsilon(); }, text));
  CHECK(throws([&] { engine.can_step(); }, text));
  tried = true;
  tried.notify_one();
  first.join();
  CHECK(engine.steps_made() == 1);
  CHECK(t.ledger.releases() == 1);
  CHECK_NOTHROW(engine.step(loss));
}

TEST_CASE("a loss may look at its engine, and not step it") {
  Attempt t;
  Engine engine = t.engine();
  const Engine::Loss loss = t.loss();
  const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
    CHECK(engine.epsilon() == 0);
    CHECK(engine.can_step());
    CHECK(throws([&] { engine.step(loss); }, "Engine::step: called inside of another call"));
    return loss(tape, rows);
  });
  CHECK(report.step == 1);
}

}  // namespace
}  // namespace sotto
