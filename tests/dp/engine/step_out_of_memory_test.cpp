// Out of memory at any allocation of a training step: nothing leaks, the model, the optimizer and
// the ledger are unchanged, and the next step works.
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "dp/engine/engine.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/failing_memory.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 6;

using Values = std::map<std::string, std::vector<double>>;

Values values_of(const std::map<std::string, Tensor>& tensors) {
  Values all;
  for (const auto& [name, x] : tensors) all[name] = to_dtype(x, Dtype::f64).to_vector<double>();
  return all;
}

struct Training {
  Training() { nn::manual_seed(3); }

  nn::Sequential model = (nn::manual_seed(3), nn::Sequential{nn::Conv2d(1, 3, 3), nn::Tanh(),
                                                             nn::Flatten(), nn::Linear(48, 4)});
  nn::Adam optimizer{model};
  Tensor x = nn::random_normal({population, 1, 6, 6}, 0, 1);
  Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 0, 1}, {population});

  Var loss(Tape& tape, std::span<const std::int64_t> rows) {
    const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
    return cross_entropy(model(tape.input(gather(x, ids, 0))), gather(labels, ids, 0));
  }
  std::pair<Values, Values> state() {
    std::map<std::string, Tensor> parameters;
    for (const auto& [name, parameter] : model.named_parameters())
      parameters[name] = parameter->value;
    return {values_of(parameters), values_of(optimizer.state(model.named_parameters()))};
  }
};

struct Failures {
  std::int64_t thrown = 0;     // steps that ended in OutOfMemory
  std::int64_t recovered = 0;  // steps that continued in smaller physical batches
};

// Fails one allocation of a step after another, until all have failed. A step that throws leaves
// every byte and state() unchanged; one that does not is complete, and leaks no byte.
template <class Step, class State>
Failures fail_everywhere(Step&& step, State&& state) {
  Failures failures;
  step();  // the first step allocates the optimizer's state
  for (std::int64_t k = 0;; ++k) {
    const auto before = state();
    const std::size_t bytes = allocator(cpu).statistics().current;
    std::optional<FailingMemory> memory(k);
    bool thrown = false;
    try {
      step();
    } catch (const OutOfMemory&) {
      thrown = true;
    }
    const bool failed = memory->failed();
    memory.reset();
    if (allocator(cpu).statistics().current != bytes || (state() == before) != thrown)
      FAIL("allocation " << k << " left something behind");
    if (!failed) return failures;
    ++(thrown ? failures.thrown : failures.recovered);
  }
}

// Plain, with memory techniques, and with noise that is correlated over the steps.
std::vector<EngineOptions> ways_to_train() {
  std::vector<EngineOptions> all;
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    for (const bool lean : {false, true}) {
      all.push_back({.noise_multiplier = 1, .logical_batch = population, .passes = passes});
      if (lean) all.back().memory = {.checkpoint = 1, .precision = Dtype::bf16};
    }
  }
  constexpr int steps = 6;
  all.push_back(all[0]);
  all.back().steps = steps;
  all.back().sampling = Sampling::planned;
  all.back().noise_strategy =
      optimize_banded_toeplitz({.steps = steps, .participation = {.min_separation = 1}}, 3);
  for (EngineOptions& options : all) options.memory.physical_batch = 4;
  return all;
}

}  // namespace

TEST_CASE("ordinary training that runs out of memory anywhere is as before the step") {
  Training t;
  const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5};
  const Failures failures = fail_everywhere(
      [&] {
        Tape tape;
        SumSink sink;
        tape.backward(t.loss(tape, rows), sink);
        t.optimizer.step(sink.gradients());
      },
      [&] { return t.state(); });
  CHECK(failures.thrown > 20);
  CHECK(failures.recovered == 0);
}

TEST_CASE("a first step that runs out of memory anywhere makes no optimizer state") {
  Training t;
  const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5};
  const auto before = t.state();
  std::int64_t k = 0;
  for (bool made = false; !made; ++k) {
    if (t.state() != before) FAIL("allocation " << k << " left something behind");
    try {
      const FailingMemory memory(k);
      Tape tape;
      SumSink sink;
      tape.backward(t.loss(tape, rows), sink);
      t.optimizer.step(sink.gradients());
      made = true;
    } catch (const OutOfMemory&) {
    }
  }
  CHECK(k > 20);
  CHECK(t.state() != before);
}

TEST_CASE("private training that runs out of memory anywhere is as before, or makes its step",
          "[gate]") {
  for (const EngineOptions& options : ways_to_train()) {
    CAPTURE(name(options.sampling), options.memory.checkpoint.has_value());
    Training t;
    Ledger ledger;
    Engine engine(t.model, t.optimizer, population, ledger, options);
    const Failures failures = fail_everywhere(
        [&] { engine.step([&](Tape& tape, auto rows) { return t.loss(tape, rows); }); },
        [&] { return std::tuple(t.state(), ledger.run_releases(), engine.steps_made()); });
    // The physical batch is halved twice, to one row, which cannot be halved again.
    CHECK(failures.recovered == 2);
    CHECK(failures.thrown > 50);
    CHECK(ledger.run_releases() == engine.steps_made());
  }
}

TEST_CASE("a limit between the needs of backward and of the first update changes nothing") {
  Training t;
  const auto before = t.state();
  Tape tape;
  SumSink sink;
  const std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5};
  tape.backward(t.loss(tape, rows), sink);
  const std::size_t current = allocator(cpu).statistics().current;
  allocator(cpu).set_limit(current + 2048);
  CHECK_THROWS_AS(t.optimizer.step(sink.gradients()), OutOfMemory);
  allocator(cpu).set_limit(0);
  CHECK(t.state() == before);
  t.optimizer.step(sink.gradients());
  CHECK(t.state() != before);
}

}  // namespace sotto
