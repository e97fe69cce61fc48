// The engine's clip groups, adaptive bounds and noise schedules, private means, and its report.
#include <cmath>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine.h"
#include "dp/engine/validation.h"
#include "dp/noise/mechanism.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/batch_loader.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

struct Training {
  Dataset data = make_digits(200, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 6), nn::Tanh(), nn::Linear(6, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 0.1}};
  Ledger ledger;

  Engine::Loss loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) {
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    };
  }
  std::vector<ClipGroup> layers(double bound) {
    return layer_groups(model.named_parameters(), bound);
  }
  std::vector<std::string> problems(EngineOptions options) {
    options.logical_batch = 100;
    return engine_problems(model, optimizer, 200, options);
  }
};

double bound_of(const Engine& engine, std::size_t group = 0) {
  return engine.clipper().groups()[group].bound;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the rows of the next loss are announced before, for prefetching") {
  nn::manual_seed(1);
  Training t;
  BatchLoader loader(t.data, cpu);
  std::vector<std::int64_t> told, asked;
  const auto expect = [&](std::span<const std::int64_t> rows) {
    told.assign(rows.begin(), rows.end());
    asked.clear();
  };
  const Engine::Loss loss = [&](Tape& tape, std::span<const std::int64_t> rows) {
    asked.insert(asked.end(), rows.begin(), rows.end());
    const Dataset batch = loader.batch(rows);
    return cross_entropy(t.model(tape.input(batch.inputs)), batch.targets);
  };
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 1.0,
                 .logical_batch = 100,
                 .memory = {.accumulation = 3},
                 .rows_of_unit =
                     [](std::int64_t unit) {
                       return std::vector{unit, unit};
                     },
                 .prefetch_rows = expect});
  for (int step = 0; step < 2; ++step) {
    engine.step(loss);
    CHECK(told.size() > 100);
    CHECK(asked == told);
  }
}

TEST_CASE("each group is clipped to its bound, at the sensitivity of all") {
  nn::manual_seed(1);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 1.0, .logical_batch = 100, .groups = t.layers(0.2)});
  CHECK(engine.clipper().sensitivity() == Approx(0.2 * (1 + 0x1p-8)));
  const ClipStatistics& statistics = *engine.step(t.loss()).statistics;
  REQUIRE(statistics.norms.size() == 2);
  for (std::size_t group = 0; group < 2; ++group) {
    for (std::size_t n = 0; n < statistics.norms[group].size(); ++n)
      CHECK(statistics.norms[group][n] * statistics.factors[group][n] <= 0.2 / std::sqrt(2.0));
  }
}

TEST_CASE("adaptive bounds move to the quantile of the norms, at the cost of the plain step") {
  nn::manual_seed(2);
  Training t;
  Training plain;
  t.optimizer.set_learning_rate(0);
  const EngineOptions options{.noise_multiplier = 1.0, .logical_batch = 100};
  EngineOptions adaptive = options;
  adaptive.clip_bound = 0.01;
  adaptive.adaptive_clipping = AdaptiveClipping{.quantile = 0.5, .learning_rate = 0.5};
  Engine engine(t.model, t.optimizer, 200, t.ledger, adaptive);
  Engine other(plain.model, plain.optimizer, 200, plain.ledger, options);
  double within = 0;
  for (int step = 0; step < 60; ++step) {
    const std::vector<double> before = engine.clipper().bounds();
    const StepReport report = engine.step(t.loss());
    CHECK(report.bounds == before);
    const ClipStatistics& statistics = *report.statistics;
    other.step(plain.loss());
    if (step < 40) continue;
    const double bound = bound_of(engine);
    for (const double norm : statistics.norms[0])
      within += (norm <= bound ? 1.0 : 0.0) / static_cast<double>(20 * statistics.units);
  }
  CHECK(within == Approx(0.5).margin(0.15));
  CHECK(engine.epsilon() == other.epsilon());
  CHECK(t.ledger.releases() == 60);
}

TEST_CASE("a schedule of bounds moves clipping and noise together") {
  nn::manual_seed(3);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 2.0,
                 .logical_batch = 100,
                 .clip_bound = 0.4,
                 .bound_schedule = nn::Schedule::exponential(0.5)});
  for (const double bound : {0.4, 0.2, 0.1}) {
    const ClipStatistics& statistics = *engine.step(t.loss()).statistics;
    CHECK(bound_of(engine) == Approx(bound));
    for (std::size_t n = 0; n < statistics.norms[0].size(); ++n)
      CHECK(statistics.norms[0][n] * statistics.factors[0][n] <= bound);
  }
  // The noise multiplier is unchanged: the noise moved with the bound.
  CHECK(t.ledger.events().size() == 1);
  CHECK(engine.mechanism().event({}).noise_multiplier == 2);
}

TEST_CASE("a noise schedule is written to the ledger and meets the target") {
  nn::manual_seed(4);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 3.0,
                 .steps = 5,
                 .logical_batch = 100,
                 .noise_schedule = nn::Schedule::step(2, 0.5)});
  for (int step = 0; step < 5; ++step) engine.step(t.loss());
  const EventCounts events = t.ledger.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].first.noise_multiplier == 3);
  CHECK(events[1].first.noise_multiplier == 1.5);
  CHECK(events[2].first.noise_multiplier == 0.75);
  CHECK(events[1].second == 2);
  PldAccountant expected;
  for (const auto& [event, count] : events) expected.compose(event, count);
  CHECK(engine.epsilon() == Approx(expected.epsilon(1e-5)).epsilon(1e-9));
}

TEST_CASE("a target is met by all steps of a schedule of noise") {
  nn::manual_seed(4);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.target_epsilon = 2.0,
                 .steps = 6,
                 .logical_batch = 50,
                 .noise_schedule = nn::Schedule::exponential(0.9)});
  int steps = 0;
  for (; engine.can_step(); ++steps) engine.step(t.loss());
  CHECK(steps == 6);
  CHECK(engine.epsilon() <= 2);
  CHECK(engine.epsilon() > 1.999);
}

TEST_CASE("releases of other runs on the ledger use up their part of the budget") {
  nn::manual_seed(5);
  Training t;
  const EngineOptions options{.target_epsilon = 1.0, .steps = 8, .logical_batch = 20};
  Engine one(t.model, t.optimizer, 200, t.ledger, options);
  Engine two(t.model, t.optimizer, 200, t.ledger.new_run(), options);
  CHECK(two.noise_multiplier() == one.noise_multiplier());
  for (int step = 0; step < 4; ++step) one.step(t.loss());
  int more = 0;
  for (; two.can_step(); ++more) two.step(t.loss());
  CHECK(more == 4);
  CHECK(two.epsilon() <= 1);
  CHECK_FALSE(one.can_step());
}

TEST_CASE("means are released through the ledger, and not beyond the target") {
  nn::manual_seed(6);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.target_epsilon = 1.0,
                 .steps = 5,
                 .planned_means = {{.noise_multiplier = 20}},
                 .logical_batch = 20,
                 .memory = {.physical_batch = 32}});
  std::size_t max = 0;
  const auto mean = [&](double noise) {
    return engine.release_means({.ranges = {{0, 1}},
                                 .values =
                                     [&](std::span<const std::int64_t> units) {
                                       max = std::max(max, units.size());
                                       std::vector<std::vector<double>> values;
                                       for (const std::int64_t unit : units)
                                         values.push_back({unit < 50 ? 1.0 : 0.0});
                                       return values;
                                     },
                                 .noise_multiplier = noise})[0];
  };
  engine.step(t.loss());
  const double before = engine.epsilon();
  CHECK(mean(20) == Approx(0.25).margin(0.5 * 20 * 6 / 200));
  CHECK(max == 32);
  CHECK(engine.epsilon() > before);
  CHECK(t.ledger.releases() == 2);
  CHECK_THROWS_AS(mean(0.1), std::invalid_argument);
  CHECK(t.ledger.releases() == 2);
  engine.step(t.loss());
  CHECK(t.ledger.releases() == 3);
}

// For ranges of which 0 is an end, the middle or outside.
TEST_CASE("a query is asked for units with rows alone, and the others add 0 to the noisy sums") {
  Training t;
  const std::vector<StatisticRange> ranges{{0, 1}, {-2, 2}, {5, 7}};
  const auto means = [&](std::int64_t with_rows) {
    Engine engine(t.model, t.optimizer, 200, Ledger(),
                  {.noise_multiplier = 1,
                   .planned_means = {{.noise_multiplier = 1e-6}},
                   .logical_batch = 20,
                   .rows_of_unit = [&](std::int64_t unit) {
                     return unit < with_rows ? std::vector{unit} : std::vector<std::int64_t>();
                   }});
    return engine.release_means({.ranges = ranges,
                                 .values =
                                     [&](std::span<const std::int64_t> units) {
                                       check(!units.empty() && units.back() < with_rows, "rows");
                                       return std::vector(units.size(), std::vector{1., 2., 5.});
                                     },
                                 .noise_multiplier = 1e-6});
  };
  for (const std::int64_t with_rows : {200, 199, 50, 0}) {
    CAPTURE(with_rows);
    const std::vector<double> found = means(with_rows);
    const double part = static_cast<double>(with_rows) / 200;
    for (std::size_t k = 0; k < ranges.size(); ++k)
      CHECK(ranges[k].to_unit(found[k]) == Approx(k == 2 ? -part : part).margin(1e-6));
  }
}

TEST_CASE("the report says what ran, in words and as JSON") {
  nn::manual_seed(7);
  Training t;
  Engine engine(
      t.model, t.optimizer, 200, t.ledger,
      {.noise_multiplier = 1.5,
       .logical_batch = 20,
       .groups = t.layers(0.5),
       .adaptive_clipping = AdaptiveClipping{.quantile = 0.3, .unclipped_count_stddev = 5}});
  engine.step(t.loss());
  const PrivacyStatement report = engine.report();
  CHECK(report.epsilon == engine.epsilon());
  CHECK(report.releases == 1);
  const std::string text = to_text(report);
  for (const char* part :
       {"differential privacy", "one training example", "probability 0.1, independently",
        "in 2 groups", "\"minimum\"", "quantile 0.3", "noise multiplier 1.5", "pld"}) {
    CAPTURE(part, text);
    CHECK(says(text, part));
  }
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["epsilon"] == report.epsilon);
  CHECK(json["delta"] == 1e-5);
  CHECK(json["sampling"] == report.sampling);
  CHECK(json["not_private"].empty());
}

TEST_CASE("the report rounds delta and epsilon up, and the noise multiplier down") {
  nn::manual_seed(7);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 1.23456789, .delta = 1.0000001e-5, .logical_batch = 20});
  engine.step(t.loss());
  const std::string text = to_text(engine.report());
  const double shown = std::stod(text.substr(text.find("= (") + 3));
  CAPTURE(text);
  CHECK(shown >= engine.epsilon());
  CHECK(shown < engine.epsilon() * 1.001);
  CHECK(says(text, ", 1.00001e-05) differential privacy"));
  CHECK(says(text, "noise multiplier 1.23456 ("));
}

TEST_CASE("the report says that an absent unit counts for nothing, and which numbers are exact") {
  nn::manual_seed(7);
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 1.5, .logical_batch = 20});
  const PrivacyStatement report = engine.report();
  CHECK(says(report.relation, "add or remove one, as zero-out"));
  CHECK(says(report.relation, "the number of units is public"));
  std::string lines;
  for (const auto* list : {&report.not_covered, &report.assumed})
    for (const std::string& line : *list) lines += line + "\n";
  for (const char* part : {"sums of gradients", "fractions clipped", "how many units were drawn",
                           "number of units: it is public", "seed", "padded", "GPUs", "ChaCha20",
                           "outside of the tape", "checkpoint", "Time, memory"}) {
    CAPTURE(part, lines);
    CHECK(says(lines, part));
  }
  CHECK_FALSE(says(lines, "floating point"));
  Engine floating(
      t.model, t.optimizer, 200, t.ledger,
      {.noise_multiplier = 1.5, .logical_batch = 20, .noise = GaussianNoise::floating_point});
  CHECK(says(to_text(floating.report()), "noise that is drawn in floating point"));
}

TEST_CASE("a report without a guarantee says so first") {
  Training t;
  Engine engine(t.model, t.optimizer, 200, t.ledger,
                {.noise_multiplier = 1.5, .logical_batch = 10});
  t.ledger.mark_not_private("noise from a seeded generator");
  const std::string text = to_text(engine.report());
  CHECK(text.find("NO PRIVACY IS GUARANTEED\nbecause of:\n  - noise from a seeded") == 0);
  CHECK(nlohmann::json::parse(to_json(engine.report()))["epsilon"].is_null());
}

TEST_CASE("problems of groups, adaptive bounds and schedules are reported with their values") {
  Training t;
  using Texts = std::vector<std::string>;
  EngineOptions options{.noise_multiplier = 1.0, .logical_batch = 100, .groups = t.layers(1)};
  CHECK(t.problems(options) == Texts{});
  options.groups[1] = options.groups[0];
  options.groups[1].bound = 0;
  CHECK(t.problems(options) == Texts{"parameter 1.weight is trained and in 2 clip groups",
                                     "parameter 1.bias is trained and in 2 clip groups",
                                     "parameter 3.weight is trained and in 0 clip groups",
                                     "parameter 3.bias is trained and in 0 clip groups",
                                     "clip group 1 has a bound of 0"});
  options.groups = t.layers(1);
  options.groups.emplace_back();
  CHECK(t.problems(options) == Texts{"clip group 2 has no parameters"});
}

TEST_CASE("a frozen parameter in a group is a problem") {
  Training t;
  EngineOptions options{.noise_multiplier = 1.0, .groups = t.layers(1)};
  t.model[1].freeze();
  const auto problems = t.problems(options);
  CHECK(std::count(problems.begin(), problems.end(),
                   "parameter 1.weight is frozen and in a clip group") == 1);
}

TEST_CASE("problems of adaptive clipping are reported") {
  Training t;
  const auto problems = [&](const AdaptiveClipping& adaptive, double noise = 1) {
    return t.problems(
        {.noise_multiplier = noise, .logical_batch = 100, .adaptive_clipping = adaptive});
  };
  using Texts = std::vector<std::string>;
  CHECK(problems({}) == Texts{});
  CHECK(problems({.quantile = 2}) == Texts{"adaptive clipping: quantile 2 outside [0, 1]"});
  const Texts little = problems({.unclipped_count_stddev = 0.5});
  REQUIRE(little.size() == 1);
  CHECK(says(little[0], "its counts alone, with a noise multiplier of 1"));
  CHECK(t.problems({.noise_multiplier = 1.0,
                    .adaptive_clipping = AdaptiveClipping{},
                    .bound_schedule = nn::Schedule::exponential(0.5)}) ==
        Texts{"adaptive clipping and a schedule of bounds: both move the clip bounds"});
}

TEST_CASE("a schedule that reaches zero within the plan is a problem") {
  Training t;
  const nn::Schedule falling = nn::Schedule::linear(1, 0, 4);
  using Texts = std::vector<std::string>;
  EngineOptions options{.noise_multiplier = 1.0, .steps = 4, .noise_schedule = falling};
  CHECK(t.problems(options) == Texts{});
  options.steps = 5;
  CHECK(t.problems(options) ==
        Texts{"the schedule of the noise multiplier is 0 times the first at step 4"});
  options.noise_schedule.reset();
  options.bound_schedule = falling;
  CHECK(t.problems(options) == Texts{"the schedule of clip bounds is 0 times the first at step 4"});
}

}  // namespace
}  // namespace sotto
