// Logical batches in physical batches: the same result for every policy, and when memory runs out.
#include "memory/accumulation.h"

#include <cmath>
#include <numeric>
#include <set>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/batch_size_search.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 24;

// In f64, with dropout, and with a bias that no sample reaches at first.
struct Training {
  Dataset data = (nn::manual_seed(1), make_digits(population, 1));
  Tensor inputs = to_dtype(data.inputs, Dtype::f64);
  nn::Sequential model{nn::AvgPool2d(4, 4), nn::Flatten(),    nn::Linear(49, 5),
                       nn::Tanh(),          nn::Dropout(0.3), nn::Linear(5, 10)};
  std::int64_t calls = 0;

  Training() { model.to(Dtype::f64); }
  Var losses(Tape& tape, std::span<const std::int64_t> rows) {
    ++calls;
    const Tensor ids =
        Tensor::from(std::vector<std::int64_t>(rows.begin(), rows.end()), {std::ssize(rows)});
    return cross_entropy(model(tape.input(gather(inputs, ids, 0))), data.batch(rows).targets);
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (Parameter* parameter : model.parameters()) {
      for (const double v : parameter->value.to_vector<double>()) all.push_back(v);
    }
    return all;
  }
};

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double max = 0;
  for (std::size_t k = 0; k < a.size(); ++k) max = std::max(max, std::abs(a[k] - b[k]));
  return max;
}

// Every result of a step on all samples, without noise.
struct Outcome {
  std::vector<double> weights;
  std::vector<double> bounds;
  std::vector<double> norms;
  std::int64_t units = 0, releases = 0, calls = 0, physical_batch = 0;
};

Outcome private_step(EngineOptions options, const char* groups = "flat", std::size_t limit = 0) {
  Training t;
  nn::Sgd optimizer(t.model, {.learning_rate = 1});
  Ledger ledger;
  options.noise_multiplier = 0;
  options.noise = GaussianNoise::floating_point;
  options.logical_batch = population;
  if (options.memory.limit > 0) options.memory.limit += allocator(cpu).statistics().current;
  if (groups[0] == 'l') options.groups = layer_groups(t.model.named_parameters(), 0.5);
  if (groups[0] == 'n')
    options.groups = {{{t.model.parameters()[0], t.model.parameters()[3]}, 0.2},
                      {{t.model.parameters()[1], t.model.parameters()[2]}, 0.1}};
  Engine engine(t.model, optimizer, population, ledger, options);
  allocator(cpu).set_limit(limit == 0 ? 0 : allocator(cpu).statistics().current + limit);
  const auto step = [&] {
    engine.step(
        [&](Tape& tape, std::span<const std::int64_t> rows) { return t.losses(tape, rows); });
  };
  try {
    step();
  } catch (const OutOfMemory&) {
  }
  allocator(cpu).set_limit(0);
  Outcome outcome{.weights = t.weights(), .releases = ledger.releases(), .calls = t.calls};
  for (const ClipGroup& group : engine.clipper().groups()) outcome.bounds.push_back(group.bound);
  for (const auto& of_group : engine.clipper().statistics().norms)
    outcome.norms.insert(outcome.norms.end(), of_group.begin(), of_group.end());
  outcome.units = engine.clipper().statistics().units;
  outcome.physical_batch = *engine.physical_batch();
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK(farthest(a.weights, b.weights) < 1e-12);
  CHECK(farthest(a.bounds, b.bounds) < 1e-12);
  CHECK(farthest(a.norms, b.norms) < 1e-12);
  CHECK(a.units == b.units);
  CHECK(a.releases == 1);
}

TEST_CASE("physical batches of any size give the step of one batch, for every policy", "[engine]") {
  // Users with zero, one or two of three rows; user 10 has one row twice.
  const auto users = [](std::int64_t unit) {
    std::vector<std::int64_t> rows;
    for (std::int64_t k = 0; k < unit % 3; ++k) rows.push_back(unit / 3 * 3 + unit % 3 - 1 + k);
    if (unit == 10) rows.push_back(rows[0]);
    return rows;
  };
  for (const char* groups : {"flat", "layers", "named"}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      for (const std::string& rule : clip_rule_names()) {
        EngineOptions options{.clip_bound = 0.3,
                              .clipping = {.rule = {.kind = clip_rule_kind(rule)}},
                              .passes = passes};
        // Some with users and with adaptive clip bounds.
        if (rule[0] != 'm' || passes == ClipPasses::two) {
          options.rows_of_unit = users;
          options.mean_of_rows = passes == ClipPasses::one;
        } else {
          options.adaptive_clipping =
              AdaptiveClipping{.quantile = 0.4, .unclipped_count_stddev = 1e-12};
        }
        CAPTURE(groups, rule);
        const Outcome whole = private_step(options, groups);
        for (const std::int64_t physical : {1, 5, 11}) {
          options.memory.physical_batch = physical;
          check_same(private_step(options, groups), whole);
        }
      }
    }
  }
}

TEST_CASE("a step that runs out of memory goes on in smaller physical batches to the same result",
          "[engine]") {
  for (const char* groups : {"flat", "layers"}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      EngineOptions options{
          .passes = passes,
          .adaptive_clipping = AdaptiveClipping{.quantile = 0.4, .unclipped_count_stddev = 1e-12}};
      const Outcome whole = private_step(options, groups);
      options.memory.physical_batch = 8;
      std::set<std::int64_t> sizes;
      for (std::size_t limit = 16'000; limit < 160'000; limit += 4'000) {
        const Outcome outcome = private_step(options, groups, limit);
        CAPTURE(groups, limit, outcome.physical_batch, outcome.calls);
        if (outcome.releases == 0) {  // less than a single block of units needs
          CHECK(farthest(outcome.weights, Training().weights()) == 0);
          continue;
        }
        check_same(outcome, whole);
        sizes.insert(outcome.physical_batch);
      }
      CHECK(sizes == std::set<std::int64_t>{2, 4, 8});
    }
  }
}

// Refuses the k-th allocation.
class Refusal final : public AllocationObserver {
 public:
  explicit Refusal(std::int64_t k) : left_(k) { allocator(cpu).add_watch(*this); }
  ~Refusal() override { allocator(cpu).remove_watch(*this); }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
  bool allows(std::size_t) override { return --left_ != 0; }
  void allocated(const Block&) override {}
  void released(const Block&) override {}
  bool came() const { return left_ <= 0; }

 private:
  std::int64_t left_;
};

TEST_CASE("a step that is refused any one allocation gives the same result or none", "[engine]") {
  const EngineOptions options{.memory = {.physical_batch = 9}};
  Training plain;
  const std::vector<double> before = plain.weights();
  const Outcome whole = private_step(options);
  int helped = 0, began_again = 0;
  bool came = true;
  for (std::int64_t k = 1; came; k += 3) {
    Training t;
    nn::Sgd optimizer(t.model, {.learning_rate = 1});
    Ledger ledger;
    EngineOptions own = options;
    own.noise_multiplier = 0;
    own.noise = GaussianNoise::floating_point;
    own.logical_batch = population;
    Engine engine(t.model, optimizer, population, ledger, own);
    const Refusal refusal(k);
    try {
      engine.step(
          [&](Tape& tape, std::span<const std::int64_t> rows) { return t.losses(tape, rows); });
    } catch (const OutOfMemory&) {
      CHECK(ledger.releases() == 0);
      CHECK(t.weights() == before);
      continue;
    }
    came = refusal.came();
    CAPTURE(k, t.calls);
    CHECK(farthest(t.weights(), whole.weights) < 1e-12);
    CHECK(engine.clipper().statistics().units == population);
    CHECK(ledger.releases() == 1);
    if (*engine.physical_batch() < 9) ++helped;
    // Physical batches of nine, one of which failed, and then the whole batch in fours.
    if (t.calls > 7) ++began_again;
  }
  CHECK(helped > 20);
  CHECK(began_again > 0);
}

// Ordinary steps on all samples.
struct OrdinaryOutcome {
  std::vector<double> gradients;
  double loss_sum = 0;
  std::int64_t calls = 0;
  std::optional<std::int64_t> physical_batch;
};

OrdinaryOutcome mean_gradient(const memory::Policy& policy, std::size_t limit = 0,
                              Dtype precision = Dtype::f32) {
  Training t;
  nn::Sgd optimizer(t.model, {.learning_rate = 1, .momentum = 0.9});
  memory::Accumulation accumulation(policy);
  std::vector<std::int64_t> rows(population);
  std::iota(rows.begin(), rows.end(), 0);
  memory::Accumulation::Result result;
  {
    const memory::LimitScope scope(limit == 0 ? 0 : allocator(cpu).statistics().current + limit);
    result = accumulation.mean_gradient(
        [&](Tape& tape, std::span<const std::int64_t> part) { return t.losses(tape, part); }, rows,
        optimizer, {.precision = precision, .seed = 3, .step = 4});
  }
  OrdinaryOutcome outcome{.loss_sum = result.loss_sum,
                          .calls = t.calls,
                          .physical_batch = accumulation.physical_batch()};
  for (const auto& [parameter, gradient] : result.gradients) {
    const auto values = gradient.to_vector<double>();
    outcome.gradients.insert(outcome.gradients.end(), values.begin(), values.end());
  }
  return outcome;
}

TEST_CASE("ordinary training in physical batches has the gradient of the mean over the whole batch",
          "[engine]") {
  const OrdinaryOutcome whole = mean_gradient({.physical_batch = population});
  CHECK(whole.calls == 1);
  const auto check_same = [&](const OrdinaryOutcome& parts) {
    CHECK(farthest(parts.gradients, whole.gradients) < 1e-12);
    CHECK(parts.loss_sum == Approx(whole.loss_sum).epsilon(1e-12));
  };
  for (const std::int64_t physical : {1, 7, 23}) {
    check_same(mean_gradient({.physical_batch = physical}));
  }
  const OrdinaryOutcome five = mean_gradient({.accumulation = 5});
  check_same(five);
  CHECK(five.calls == 5);
  const OrdinaryOutcome both = mean_gradient({.physical_batch = 3, .accumulation = 5});
  check_same(both);
  CHECK(both.calls == 8);
  std::set<std::int64_t> sizes;
  for (std::size_t limit = 16'000; limit < 160'000; limit += 4'000) {
    CAPTURE(limit);
    try {
      const OrdinaryOutcome halved = mean_gradient({.physical_batch = 8}, limit);
      check_same(halved);
      sizes.insert(*halved.physical_batch);
    } catch (const OutOfMemory&) {
      CHECK(sizes.empty());
    }
  }
  CHECK(sizes == std::set<std::int64_t>{1, 2, 4, 8});
  CHECK(mean_gradient({}).physical_batch == memory::usual_physical_batch);
  CHECK_THROWS_AS(mean_gradient({.accumulation = 0}), std::invalid_argument);
}

TEST_CASE("passes in f64 have smaller physical batches where the policy makes some, and no scale") {
  const OrdinaryOutcome whole = mean_gradient({}, 0, Dtype::f64);
  CHECK(whole.calls == 1);
  const auto calls = [&](const memory::Policy& policy) {
    const OrdinaryOutcome parts = mean_gradient(policy, 0, Dtype::f64);
    CHECK(farthest(parts.gradients, whole.gradients) < 1e-12);
    if (policy.physical_batch) CHECK(parts.physical_batch == policy.physical_batch);
    return parts.calls;
  };
  CHECK(calls({.physical_batch = 8}) == 6);
  CHECK(calls({.physical_batch = 8, .precision = Dtype::f16}) == 12);
  CHECK(calls({.physical_batch = 1}) == population);
  CHECK(calls({.accumulation = 3}) == 6);
}

// Peaks that grow by a constant for each row up to a knee, and by less from there on.
std::size_t bent(std::int64_t rows, std::int64_t knee) {
  return static_cast<std::size_t>(1000 + 100 * std::min(rows, knee) +
                                  20 * std::max<std::int64_t>(0, rows - knee));
}

TEST_CASE("the largest number of rows within a limit is found in a few runs") {
  for (const std::int64_t knee : {1, 3, 50, 10'000}) {
    for (const std::size_t limit : {1100, 1250, 1999, 5000, 100'000}) {
      std::vector<std::int64_t> runs;
      const memory::BatchSizeSearch fit = memory::largest_batch_that_fits(
          [&](std::int64_t rows) {
            runs.push_back(rows);
            return bent(rows, knee);
          },
          1, 2000, limit);
      CAPTURE(knee, limit, fit.rows, fit.runs);
      CHECK(fit.measured == bent(fit.rows, knee));
      CHECK(fit.measured <= limit);
      CHECK((fit.rows == 2000 || bent(fit.rows + 1, knee) > limit ||
             static_cast<double>(fit.measured) >= 31.0 / 32 * static_cast<double>(limit)));
      CHECK(fit.runs == std::ssize(runs));
      CHECK(fit.runs <= 6);
      // A line through two runs predicts the third.
      if (knee == 10'000 && fit.runs > 2) CHECK(fit.predicted == fit.measured);
    }
  }
}

TEST_CASE("runs without memory count as too large, and a limit below one row is an error") {
  const auto peak_of = [](std::int64_t rows) -> std::size_t {
    if (rows > 5) throw std::bad_alloc();
    return 10;
  };
  CHECK(memory::largest_batch_that_fits(peak_of, 1, 12, 100).rows == 5);
  const auto large = [](std::int64_t) -> std::size_t { return 3000; };
  CHECK(memory::largest_batch_that_fits(large, 2, 9, 2048).rows == 0);
  const memory::Strategy strategy{"some way", [] { return memory::StrategyCost{}; }};
  CHECK(throws(
      [&] {
        memory::choose_strategy({&strategy, 1}, {large, 2, 9, 0, 2048});
      },
      "memory: 2 rows at once: 2.93 KiB (some way) needed, and the limit is 2.00 KiB "
      "(2048 B)"));
  CHECK(throws(
      [&] {
        memory::choose_strategy({&strategy, 1}, {large, 2, 9, 4096, 2048});
      },
      "memory: the update of all parameters: 4.00 KiB needed"));
}

TEST_CASE("a private step finds the physical batch that keeps its limit, and nothing else changes",
          "[engine]") {
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    EngineOptions options{.passes = passes};
    const Outcome whole = private_step(options);
    std::int64_t last = 0;
    for (const std::size_t more : {60'000, 120'000, 600'000}) {
      options.memory = {.limit = more};
      const Outcome found = private_step(options);
      CAPTURE(more, found.physical_batch);
      check_same(found, whole);
      CHECK(found.physical_batch > last);
      last = found.physical_batch;
    }
    CHECK(last == population);
    options.memory.accumulation = 3;
    const Outcome parts = private_step(options);
    check_same(parts, whole);
    CHECK(parts.physical_batch == 8);
  }
  const auto none = [] { private_step({.memory = {.limit = 1000}}); };
  CHECK(throws(none, "memory: the update of all parameters: "));
}

}  // namespace
}  // namespace sotto
