// Plans that keep a limit: the choice, and whether its prediction is right.
#include "memory/planning/planner.h"

#include <numeric>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/accumulation.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/layers/attention_layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 48;

Tensor normal(const Shape& shape) {
  PublicRandom random(5);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

// A network with random inputs, and a loss of its result for each row.
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
    } else if (name == "deep") {
      for (int k = 0; k < 5; ++k) {
        model.add(nn::TransformerEncoderLayer(16, 2, {.dim_feedforward = 32, .batch_first = true}));
        model.add(nn::Gelu());
      }
      inputs = normal({population, 24, 16});
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

// Bytes beyond those in use before.
struct Peaks {
  memory::Plan plan;
  double predicted, measured;
};

// A step within `more` bytes beyond those in use, after one that made the plan.
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
  memory::Accumulation accumulation(options.memory, problem.model);
  for (int k = 0; k < 2; ++k) {
    if (engine) {
      engine->step(loss);
      continue;
    }
    const auto result = accumulation.mean_gradient(loss, rows, optimizer);
    optimizer.step(result.gradients);
  }
  const memory::PhaseProfiler& phases = engine ? engine->phases() : accumulation.phases();
  std::size_t measured = 0;  // of forward and backward
  for (const memory::PhaseTotal& phase : phases.totals()) {
    if (phase.name.find("ward") != std::string::npos)
      measured = std::max(measured, phase.peak_bytes[0]);
  }
  const memory::Plan plan = engine ? *engine->memory_plan() : *accumulation.plan();
  return {plan, static_cast<double>(plan.fit().measured - before),
          static_cast<double>(measured - before)};
}

TEST_CASE("plans keep their limits, and predict the peak of a step") {
  for (const char* network : {"perceptron", "conv net", "transformer"}) {
    for (const bool privately : {false, true}) {
      for (const std::size_t more : {2'600'000, 3'600'000, 20'000'000}) {
        const Peaks peaks = step(network, privately, more);
        CAPTURE(network, privately, more, peaks.plan.text());
        CHECK(peaks.measured <= static_cast<double>(more));
        // Blocks of units may fill a private physical batch to three quarters only.
        const double full = privately ? 0.75 : 0.9;
        CHECK(peaks.measured >= full * peaks.predicted);
        CHECK(peaks.measured <= 1.1 * peaks.predicted);
      }
    }
  }
}

TEST_CASE("checkpoints keep a limit that nothing cheaper does, and the peak is as predicted",
          "[gate]") {
  for (const bool privately : {false, true}) {
    EngineOptions options{
        .memory = {.physical_batch = memory::useful_rows, .precision = Dtype::f32}};
    const double needed = step("deep", privately, 50'000'000, options).predicted;
    double again = 0;
    for (const double part : {0.85, 0.6}) {
      const auto more = static_cast<std::size_t>(part * needed);
      const Peaks peaks = step("deep", privately, more, options);
      const memory::Plan::Considered& chosen = peaks.plan.considered[peaks.plan.chosen];
      CAPTURE(privately, part, needed, peaks.plan.text());
      CHECK(chosen.name.ends_with(", checkpoints"));
      CHECK(chosen.text.find("recomputes modules ") != std::string::npos);
      CHECK(chosen.fit.rows == memory::useful_rows);
      CHECK(chosen.recomputation > again);
      CHECK(peaks.measured <= static_cast<double>(more));
      CHECK(peaks.predicted == Approx(peaks.measured).epsilon(0.1));
      again = chosen.recomputation;
    }
    options.memory.checkpoint = 0;
    for (const auto& strategy : step("deep", privately, 50'000'000, options).plan.considered)
      CHECK(strategy.name.find("checkpoints") == std::string::npos);
  }
}

TEST_CASE("a policy sets a model's checkpoints and precision, and refuses what it cannot set") {
  using Segments = std::vector<nn::Sequential::Segment>;
  Problem problem("conv net");
  nn::Sequential& model = problem.model;
  memory::apply({.checkpoint = 3, .precision = Dtype::bf16}, model);
  CHECK(model.segments() == Segments{{0, 3}, {3, 6}, {6, 8}});
  CHECK(model.precision() == Dtype::bf16);
  CHECK(memory::has_checkpoints(model));
  CHECK_FALSE(memory::can_checkpoint({}, model));
  memory::apply({}, model);
  CHECK(model.segments().size() == 3);
  model[0].set_recomputing(true);
  memory::apply({.checkpoint = 0}, model);
  CHECK_FALSE(memory::has_checkpoints(model));
  CHECK(memory::can_checkpoint({}, model));
  CHECK_FALSE(memory::can_checkpoint({.checkpoint = 0}, model));
  CHECK(throws([&] { memory::apply({.limit = 1}, model); }, "settings of steps"));
  CHECK(throws([&] { memory::set_checkpoints(model, -1); }, "every -1 modules"));
  nn::Linear layer(2, 2);
  CHECK(throws([&] { memory::set_checkpoints(layer, 1); }, "no Sequential of several modules"));
  CHECK(throws([] { memory::Accumulation accumulation({.checkpoint = 1}); },
               "activation checkpoints need the model"));
  nn::Sgd optimizer(layer, {.learning_rate = 0.01});
  Ledger ledger;
  const EngineOptions options{
      .noise_multiplier = 1, .logical_batch = 4, .memory = {.checkpoint = 1}};
  CHECK(throws([&] { Engine(layer, optimizer, population, ledger, options); },
               "checkpoints at every 1 modules of a model without a Sequential"));
  memory::Accumulation accumulation({.checkpoint = 4}, model);
  CHECK(model.segments() == Segments{{0, 4}, {4, 8}});
}

TEST_CASE(
    "the first strategy with room for useful rows is taken, else the first with room for any") {
  std::size_t each = 0;  // bytes of a row under the strategy applied last
  const auto strategy = [&](const char* name, double recomputation, std::size_t bytes) {
    return memory::Strategy{name, [&each, recomputation, bytes]() -> memory::StrategyCost {
                              each = bytes;
                              return {recomputation};
                            }};
  };
  const memory::Strategy strategies[] = {strategy("plain", 0, 100), strategy("lean", 1, 50),
                                         strategy("leanest", 2, 10)};
  const auto chosen = [&](std::size_t limit, std::int64_t max) {
    const auto peak_of = [&](std::int64_t rows) { return each * static_cast<std::size_t>(rows); };
    const memory::Plan plan =
        memory::choose_strategy(strategies, {.peak_of = peak_of, .max = max, .limit = limit});
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

TEST_CASE("a plan keeps the settings that were requested") {
  const auto names = [](const EngineOptions& options) {
    std::vector<std::string> all;
    try {
      for (const auto& strategy : step("conv net", true, 20'000'000, options).plan.considered)
        all.push_back(strategy.name);
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

TEST_CASE("checkpoints and precisions are read as they are written") {
  for (const char* text : {"auto", "none", "1", "12"})
    CHECK(memory::checkpoint_text(memory::parse_checkpoint(text)) == text);
  CHECK(memory::parse_checkpoint("none") == 0);
  for (const char* text : {"auto", "f32", "bf16", "f16"})
    CHECK(memory::precision_text(memory::parse_precision(text)) == text);
  for (const char* wrong : {"", "0", "-1", "2x", "all"})
    CHECK_THROWS_AS(memory::parse_checkpoint(wrong), std::invalid_argument);
  for (const char* wrong : {"", "f64", "F32", "i64"})
    CHECK_THROWS_AS(memory::parse_precision(wrong), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
