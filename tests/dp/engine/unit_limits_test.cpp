// Memory limits of units with rows of their own: what fits depends on the largest unit, which is
// somebody's data, and decides nothing that rounds the gradients of others.
#include <set>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/planner.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 60;

// Returns whether steps on units with many rows each have a plan within `more` bytes. The network
// has wide values, which 16 bits halve.
bool plans(std::size_t more, std::optional<Dtype> precision) {
  constexpr std::int64_t width = 2048;
  const Dataset data = make_digits(population, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 4), nn::Linear(4, width), nn::Tanh(),
                       nn::Tanh(),    nn::Tanh(),         nn::Linear(width, 10)};
  nn::Sgd optimizer(model, {.learning_rate = 1});
  Ledger ledger;
  EngineOptions options{.noise_multiplier = 1, .logical_batch = population};
  options.rows_of_unit = [](std::int64_t unit) {
    return std::vector<std::int64_t>(population, unit);
  };
  options.memory.precision = precision;
  options.memory.limit = allocator(cpu).statistics().current + more;
  Engine engine(model, optimizer, population, ledger, options);
  try {
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    });
  } catch (const std::exception&) {
    // The step may run out of memory; the test looks at the plan only.
  }
  return engine.memory_plan() != nullptr;
}

}  // namespace

TEST_CASE("the number of a unit's rows does not decide the precision of all", "[gate]") {
  constexpr std::size_t step = 1 << 16;
  std::size_t less = 0, more = step;  // there is no plan within the one, and one within the other
  for (; !plans(more, Dtype::bf16); more *= 2) less = more;
  while (more - less > step) {
    const std::size_t middle = (less + more) / 2;
    (plans(middle, Dtype::bf16) ? more : less) = middle;
  }
  CHECK(!plans(more, std::nullopt));  // in f32 it does not fit, and nothing else was allowed
  CHECK(plans(4 * more, std::nullopt));
}

TEST_CASE("the number of a unit's rows decides no norms or passes of all", "[gate]") {
  constexpr std::int64_t width = 2048, positions = 8;
  nn::manual_seed(2);
  const Tensor x = nn::random_normal({population, positions, 16});
  std::set<std::string> tried;
  for (std::size_t more = 1 << 20; more < (8 << 20); more += more / 8) {
    nn::Sequential model{nn::Linear(16, width), nn::Tanh(), nn::Tanh(), nn::Linear(width, 2)};
    nn::Sgd optimizer(model, {.learning_rate = 1});
    Ledger ledger;
    EngineOptions options{.noise_multiplier = 1, .logical_batch = population};
    options.rows_of_unit = [](std::int64_t unit) { return std::vector<std::int64_t>{unit}; };
    options.memory.limit = allocator(cpu).statistics().current + more;
    Engine engine(model, optimizer, population, ledger, options);
    try {
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        const Dataset all{.inputs = x, .targets = x};
        return sum(square(model(tape.input(all.batch(rows).inputs))), {1, 2});
      });
    } catch (const std::exception&) {
      // No strategy fits.
    }
    if (engine.memory_plan() == nullptr) continue;
    for (const auto& strategy : engine.memory_plan()->considered) tried.insert(strategy.name);
  }
  CHECK(tried == std::set<std::string>{"one pass, f32", "one pass, f32, checkpoints"});
}

}  // namespace sotto
