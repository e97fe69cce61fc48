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
      model = nn::Sequential{nn::Linear(300, 200), nn::Relu(), nn::Linear(200, 100)};
      inputs = normal({population, 300});
    } else if (name == "conv net") {
      model = nn::Sequential{nn::Conv2d(3, 8, 3, {.padding = {1}}),
                             nn::GroupNorm(2, 8),
                             nn::Relu(),
                             nn::Conv2d(8, 8, 3, {.padding = {1}}),
                             nn::Relu(),
                             nn::MaxPool2d(2, 2),
                             nn::Flatten(),
                             nn::Linear(512, 10)};
      inputs = normal({population, 3, 16, 16});
    } else {
      model = nn::Sequential{
          nn::TransformerEncoderLayer(32, 4, {.dim_feedforward = 64, .batch_first = true}),
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
  for (int k = 0; k < 2; ++k) {
    if (engine) {
      engine->step(loss);
      continue;
    }
    const auto result = accumulation.mean_gradient(loss, rows, optimizer);
    optimizer.step(result.gradients);
  }
  const PhaseClock& phases = engine ? engine->phases() : accumulation.phases();
  std::size_t measured = 0;  // of forward and backward
  for (const PhaseTotal& phase : phases.totals()) {
    if (phase.name.find("ward") != std::string::npos)
      measured = std::max(measured, phase.peak_bytes[0]);
  }
  const memory::Plan plan = engine ? *engine->memory_plan() : *accumulation.plan();
  return {plan, static_cast<double>(plan.fit().measured - before),
          static_cast<double>(measured - before)};
}

TEST_CASE("plans keep their limits, and predict the peak of a step within a tenth") {
  for (const char* network : {"perceptron", "conv net", "transformer"}) {
    for (const bool privately : {false, true}) {
      for (const std::size_t more : {2'000'000, 3'000'000, 20'000'000}) {
        const Peaks peaks = step(network, privately, more);
        CAPTURE(network, privately, more, peaks.plan.text());
        CHECK(peaks.measured <= static_cast<double>(more));
        CHECK(peaks.predicted == Approx(peaks.measured).epsilon(0.1));
      }
    }
  }
}

TEST_CASE("the first way in which useful rows fit is taken, else the first in which any do") {
  std::size_t each = 0;  // bytes of a row, in the way that was entered last
  const memory::Way ways[] = {{"plain", 0, [&] { each = 100; }},
                              {"lean", 1, [&] { each = 50; }},
                              {"leanest", 2, [&] { each = 10; }}};
  const auto chosen = [&](std::size_t limit, std::int64_t most) {
    const auto peak_of = [&](std::int64_t rows) { return each * static_cast<std::size_t>(rows); };
    const memory::Plan plan =
        memory::choose_way(ways, {.peak_of = peak_of, .most = most, .limit = limit});
    CHECK(plan.fit().measured == each * static_cast<std::size_t>(plan.fit().rows));
    const auto json = nlohmann::json::parse(plan.json());
    CHECK(json["chosen"] == plan.considered[plan.chosen].name);
    CHECK(plan.text().find(plan.considered[plan.chosen].name) != std::string::npos);
    return plan.considered[plan.chosen].name;
  };
  CHECK(chosen(900, 100) == "plain");
  CHECK(chosen(700, 100) == "lean");
  CHECK(chosen(300, 100) == "leanest");
  CHECK(chosen(300, 3) == "plain");
  CHECK(chosen(70, 100) == "lean");
  CHECK(throws([&] { chosen(9, 100); }, "memory: 1 row at once: 10 B (leanest) needed"));
}

TEST_CASE("what was asked for is kept by a plan") {
  const auto names = [](const EngineOptions& options) {
    std::vector<std::string> all;
    try {
      for (const auto& way : step("conv net", true, 20'000'000, options).plan.considered)
        all.push_back(way.name);
    } catch (const std::invalid_argument&) {
    }
    return all;
  };
  CHECK(names({}) == std::vector<std::string>{"one pass, f32"});
  CHECK(names({.memory = {.precision = Dtype::bf16}}) ==
        std::vector<std::string>{"one pass, bf16"});
  CHECK(names({.passes = ClipPasses::two}) == std::vector<std::string>{"two passes, f32"});
}

TEST_CASE("sizes in bytes are read and written with units") {
  CHECK(memory::parse_bytes("4096") == 4096);
  CHECK(memory::parse_bytes("2GiB") == std::size_t{2} << 30);
  CHECK(memory::parse_bytes("1.5 MB") == 1'500'000);
  CHECK(memory::parse_bytes("3kB") == 3000);
  for (const char* wrong : {"", "GiB", "2 Gib", "-1MB", "0", "1e3", "nan", "9999999TiB", "2GiB "}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(memory::parse_bytes(wrong), std::invalid_argument);
  }
  CHECK(memory::bytes_text(std::size_t{3} << 29) == "1.50 GiB");
  CHECK(memory::bytes_text(12) == "12 B");
}

}  // namespace
}  // namespace sotto
