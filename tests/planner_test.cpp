// Plans that keep a limit: what they choose, and whether it is what they said.
#include "sotto/memory/planner.h"

#include <numeric>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "sotto/autograd/ops.h"
#include "sotto/core/allocator.h"
#include "sotto/core/philox.h"
#include "sotto/dp/engine.h"
#include "sotto/kernels/compute.h"
#include "sotto/memory/accumulation.h"
#include "sotto/nn/attention_layers.h"
#include "sotto/nn/init.h"
#include "sotto/nn/layers.h"
#include "throws.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 48;

Tensor normal(const Shape& shape) {
  PublicRandom random(5);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

// A network, random inputs for it, and a loss of its result for each row.
struct Problem {
  explicit Problem(const std::string& name) {
    nn::manual_seed(1);
    if (name == "perceptron") {
      model = nn::Sequential{nn::Linear(300, 200), nn::ReLU(), nn::Linear(200, 100)};
      inputs = normal({population, 300});
    } else if (name == "conv net") {
      model = nn::Sequential{nn::Conv2d(3, 8, 3, {.padding = {1}}),
                             nn::GroupNorm(2, 8),
                             nn::ReLU(),
                             nn::Conv2d(8, 8, 3, {.padding = {1}}),
                             nn::ReLU(),
                             nn::MaxPool2d(2, 2),
                             nn::Flatten(),
                             nn::Linear(512, 10)};
      inputs = normal({population, 3, 16, 16});
    } else {
      model = nn::Sequential{nn::TransformerEncoderLayer(32, 4, {.dim_feedforward = 64}),
                             nn::Linear(32, 8)};
      inputs = normal({population, 24, 32});
    }
  }
  Var losses(Tape& tape, std::span<const std::int64_t> rows) {
    const Tensor ids =
        Tensor::from(std::vector<std::int64_t>(rows.begin(), rows.end()), {std::ssize(rows)});
    const Var y = model(tape.input(gather(inputs, ids, 0)));
    return mean_per_sample(y * y);
  }

  nn::Sequential model;
  Tensor inputs;
};

std::size_t in_use() { return allocator(cpu).statistics().current; }

// Beyond what is in use before.
struct Peaks {
  memory::Plan plan;
  double predicted, measured;
};

// A step within so many bytes beyond what there is, after one that made the plan.
Peaks step(const std::string& network, bool privately, std::size_t more,
           EngineOptions options = {}) {
  Problem problem(network);
  nn::Sgd optimizer(problem.model, {.learning_rate = 0.01, .momentum = 0.9});
  Ledger ledger;
  options.noise_multiplier = 1;
  options.logical_batch = population;
  options.memory.limit = in_use() + more;
  const std::size_t before = in_use();
  const auto loss = [&](Tape& tape, std::span<const std::int64_t> rows) {
    return problem.losses(tape, rows);
  };
  std::vector<std::int64_t> rows(population);
  std::iota(rows.begin(), rows.end(), 0);
  std::optional<Engine> engine;
  if (privately) engine.emplace(problem.model, optimizer, population, ledger, options);
  memory::Accumulation accumulation(options.memory);
  PhaseClock clock;
  for (int k = 0; k < 2; ++k) {
    if (engine) {
      engine->step(loss);
      continue;
    }
    const auto result = accumulation.mean_gradient(loss, rows, optimizer);
    optimizer.step(result.gradients);
  }
  const PhaseClock& phases = engine ? engine->phases() : accumulation.phases();
  const memory::Plan plan = engine ? *engine->memory_plan() : *accumulation.plan();
  return {plan, static_cast<double>(plan.predicted() - before),
          static_cast<double>(phases.peak_bytes() - before)};
}

TEST_CASE("plans keep their limits, and predict the peak of a step within a tenth") {
  for (const char* network : {"perceptron", "conv net", "transformer"}) {
    for (const bool privately : {false, true}) {
      for (const std::size_t more : {1'600'000, 3'000'000, 20'000'000}) {
        const Peaks peaks = step(network, privately, more);
        WARN(network << " " << privately << " " << more << " " << peaks.predicted << " "
                     << peaks.measured << " " << peaks.plan.text());
        CHECK(peaks.measured <= static_cast<double>(more));
        CHECK(peaks.predicted == Approx(peaks.measured).epsilon(0.1));
      }
    }
  }
}

}  // namespace
}  // namespace sotto
