// Attempts to release more than the ledger records; all of them fail.
#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "autograd/segment.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/mechanism.h"
#include "dp/sampling/epoch_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t population = 60;

struct Training {
  Dataset data = (nn::manual_seed(1), make_digits(population, 1));  // before the model is made
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 4), nn::Dropout(0.5), nn::Linear(4, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 1}};
  bool fails = false;

  Engine::Loss loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) {
      if (fails) throw std::runtime_error("no memory");
      const Dataset batch = data.batch(rows);
      return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
    };
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (Parameter* parameter : model.parameters()) {
      for (const double v : to_dtype(parameter->value, Dtype::f64).to_vector<double>())
        all.push_back(v);
    }
    return all;
  }
};

double moved(const std::vector<double>& a, const std::vector<double>& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

// Returns the weights after a step with negligible noise on all units. Unit 7 has no rows, its own
// rows, or some of them three times.
std::vector<double> step_with(const std::vector<std::int64_t>& rows_of_7) {
  Training t;
  Ledger ledger;
  Engine engine(t.model, t.optimizer, population, ledger,
                {.noise_multiplier = 1e-6,
                 .logical_batch = population,
                 .memory = {.physical_batch = 11},
                 .rows_of_unit =
                     [&](std::int64_t unit) {
                       return unit == 7 ? rows_of_7 : std::vector<std::int64_t>{unit};
                     },
                 .clip_bound = 1});
  engine.step(t.loss());
  return t.weights();
}

TEST_CASE(
    "a unit's presence does not change others' dropout, and its rows have masks of their own") {
  const std::vector<double> without = step_with({}), with = step_with({7});
  // The clip bound over the batch size, plus the small noise.
  CHECK(moved(without, with) <= 1.0 / population * 1.001);
  CHECK(moved(without, with) > 0.1 / population);
  CHECK(moved(without, step_with({7, 7, 7})) <= 1.0 / population * 1.001);
}

TEST_CASE("a row repeated within its unit gets another dropout mask") {
  Tape tape({.seed = 3, .rows = {5, 5 + (std::int64_t{1} << 40), 6, 5}});
  const Tensor mask = dropout(tape.input(full({4, 64}, 1)), 0.5).value();
  const auto row = [&](int n) { return mask.select(0, n).to_vector<float>(); };
  CHECK(row(0) == row(3));
  CHECK(row(0) != row(1));
  CHECK(row(0) != row(2));
  CHECK_THROWS_AS(dropout(tape.input(full({5, 2}, 1)), 0.5), std::invalid_argument);
}

std::vector<std::vector<double>> zeros_of(std::span<const std::int64_t> units) {
  return std::vector(units.size(), std::vector<double>{0});
}

EngineOptions partition_options() {
  return {.noise_multiplier = 1, .sampling = Sampling::partition, .logical_batch = 15};
}

TEST_CASE("a loss that throws leaves sampler and ledger where they were") {
  Training t;
  Ledger ledger(LedgerHeader{.relation = NeighboringRelation::replace_one});
  Engine engine(t.model, t.optimizer, population, ledger, partition_options());
  const auto fail = [&](int times) {
    t.fails = true;
    for (int k = 0; k < times; ++k) CHECK_THROWS_AS(engine.step(t.loss()), std::runtime_error);
    t.fails = false;
  };
  fail(3);
  for (int k = 0; k < 10; ++k) {
    engine.step(t.loss());
    fail(k % 3);
  }
  const EventCounts events = ledger.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].second == 3);  // epochs of four batches
  CHECK(events[1].second == 7);
}

// Releases a sampler's batches, for a parameter that no loss changes.
struct Releases {
  Parameter w{full({3}, 0)};
  Clipper clipper{flat_group({&w}, 1)};
  GaussianMechanism mechanism{1};
  Ledger ledger{LedgerHeader{.relation = NeighboringRelation::replace_one}};
  void release(SampledBatch draw) {
    clipper.discard();
    clipper.begin(draw);
    if (!draw.units().empty()) clipper.add_zeros(std::ssize(draw.units()));
    mechanism.release(clipper.finish(std::move(draw)), ledger);
  }
};

TEST_CASE("a loss can neither step its engine nor release means, and its own step is unchanged") {
  for (const int at : {0, 1}) {  // before and after something was added
    for (const bool means : {false, true}) {
      CAPTURE(at, means);
      Training t;
      Ledger ledger;
      Engine engine(
          t.model, t.optimizer, population, ledger,
          {.noise_multiplier = 1, .logical_batch = population, .memory = {.physical_batch = 30}});
      int calls = 0;
      const auto greedy = [&](Tape& tape, std::span<const std::int64_t> rows) {
        if (calls++ == at) {
          const auto release = [&] {
            if (means) engine.release_means({.ranges = {{0, 1}}, .values = zeros_of});
            if (!means) engine.step(t.loss());
          };
          // The loss continues after the error, as an attacker's would.
          CHECK(throws(release, "called inside of another call"));
        }
        return t.loss()(tape, rows);
      };
      CHECK(engine.step(greedy).statistics->units == population);
      CHECK(calls > at);
      CHECK(ledger.releases() == 1);
      CHECK(engine.step(t.loss()).statistics->units == population);
      CHECK(ledger.releases() == 2);
    }
  }
}

TEST_CASE("two passes over a segment that recomputes other values are refused") {
  Parameter w(full({2}, 1));
  Clipper clipper({{{&w}, 1.0}}, {}, ClipPasses::two);
  double factor = 1;
  const auto add = [&](double growth) {
    Tape tape({.private_data = true});
    const Var x = tape.input(full({3, 2}, 1));
    clipper.add(tape, sum_per_sample(segment(
                          [&, growth](const Var& v) {
                            factor *= growth;
                            return v * v.tape().use(w) * v.tape().constant(full({2}, factor));
                          },
                          x)));
  };
  CHECK(throws([&] { add(1e3); }, "other values in the second backward pass"));
  clipper.discard();
  CHECK_NOTHROW(add(1));
}

TEST_CASE("a unit without rows that could not be added leaves a batch that must be discarded") {
  Parameter w(full({2}, 1));
  Clipper clipper({{{&w}, 1.0}});
  CHECK_THROWS(clipper.add_zeros(-1));
  CHECK(clipper.broken());
}

TEST_CASE("batches of an uncharged epoch are refused, whatever earlier epochs left") {
  Releases r;
  PartitionSampler sampler(40, 10);
  r.release(sampler.draw());
  r.release(sampler.draw());
  sampler.resume_from(r.ledger.next_draw());
  sampler.draw();  // the new epoch's first batch is lost
  CHECK(throws([&] { r.release(sampler.draw()); }, "is not the last one charged"));
  sampler.resume_from(r.ledger.next_draw());
  for (int k = 0; k < 4; ++k) r.release(sampler.draw());
  CHECK(r.ledger.releases() == 6);
  CHECK(r.ledger.events()[0].second == 2);
}

TEST_CASE("an edited state cannot repeat a batch of an epoch") {
  Releases r;
  PartitionSampler sampler(40, 10);
  r.release(sampler.draw());
  SamplerState state = sampler.state();
  r.release(sampler.draw());
  state.number = r.ledger.next_draw();
  sampler.load_state(state);
  CHECK(throws([&] { r.release(sampler.draw()); }, "comes after batch 1"));
}

TEST_CASE("a clipper that failed in mid-batch continues only after it discarded the batch") {
  Parameter a(full({2}, 1)), b(full({2}, 1));
  Clipper clipper({{{&a}, 1.0}});
  const auto add = [&](bool both) {
    Tape tape({.private_data = true});
    const Var x = tape.input(full({3, 2}, 1));
    const Var loss = sum_per_sample(x * tape.use(a));
    clipper.add(tape, both ? loss + sum_per_sample(x * tape.use(b)) : loss);
  };
  CHECK_THROWS_AS(add(true), std::invalid_argument);
  CHECK(throws([&] { add(false); }, "an earlier physical batch of this batch failed"));
  CHECK_THROWS_AS(clipper.set_bounds({0.01}), std::invalid_argument);
  FullBatchSampler sampler(3);
  CHECK_THROWS_AS(clipper.finish(sampler.draw()), std::invalid_argument);
  clipper.discard();
  CHECK_NOTHROW(add(false));
}

TEST_CASE("clip bounds out of range for single-precision sums are refused") {
  Parameter a(full({2}, 1));
  for (const double bound : {1e31, 1e-31, 0.0, -1.0})
    CHECK_THROWS_AS(Clipper(flat_group({&a}, bound)), std::invalid_argument);
}

TEST_CASE("a checkpoint of another run of the same ledger is refused") {
  const Place place;
  std::vector<LedgerPosition> marks;
  for (const char* name : {"a", "b"}) {
    Training t;
    Ledger ledger = name[0] == 'a' ? Ledger::create(place.path(),
                                                    {.relation = NeighboringRelation::replace_one})
                                   : Ledger::open(place.path());
    Engine engine(t.model, t.optimizer, population, ledger, partition_options());
    engine.step(t.loss());
    save_checkpoint(place.path(name), t.model, t.optimizer, engine, ledger);
    marks.push_back(checkpoint_mark(place.path(name)));
  }
  Training t;
  Ledger ledger = Ledger::resume(place.path(), marks[0]);
  Engine engine(t.model, t.optimizer, population, ledger, partition_options());
  CHECK(throws([&] { load_checkpoint(place.path("b"), t.model, t.optimizer, engine); },
               "engine state: of another run than this ledger's"));
  CHECK_NOTHROW(load_checkpoint(place.path("a"), t.model, t.optimizer, engine));
}

TEST_CASE("a ledger about other units is refused") {
  Training t;
  Ledger ledger(LedgerHeader{.unit = "one patient"});
  EngineOptions options{.noise_multiplier = 1, .logical_batch = 10};
  const auto make = [&] { Engine(t.model, t.optimizer, population, ledger, options); };
  CHECK(
      throws(make, "the unit of privacy is \"one training example\", and \"one patient\" in the"));
  options.unit = "one patient";
  CHECK_NOTHROW(make());
  options.mean_of_rows = true;
  CHECK(throws(make, "mean_of_rows without rows_of_unit"));
  options.mean_of_rows = false;
  options.bucket_of_unit = [](std::int64_t unit) { return unit; };
  CHECK_NOTHROW(make());
  options.memory.limit = 1 << 30;
  CHECK(throws(make, "bucket_of_unit with a memory limit"));
}

TEST_CASE("engines of one ledger have one population, also after it was closed") {
  const Place place;
  const auto make = [](Ledger& ledger, std::int64_t units) {
    Training t;
    Engine(t.model, t.optimizer, units, ledger, {.noise_multiplier = 1, .logical_batch = 10});
  };
  {
    Ledger ledger = Ledger::create(place.path());
    CHECK_THROWS_AS(make(ledger, 5), std::invalid_argument);  // no engine, and nothing declared
    make(ledger, population);
    make(ledger, population);
  }
  Ledger ledger = Ledger::open(place.path());
  CHECK(throws([&] { make(ledger, population + 1); },
               "a population of 61, where an earlier run said 60"));
  CHECK_NOTHROW(make(ledger, population));
}

TEST_CASE("a target is out of reach once the ledger is not private") {
  Training t;
  Ledger ledger;
  Engine engine(t.model, t.optimizer, population, ledger,
                {.target_epsilon = 3, .steps = 4, .logical_batch = 10});
  engine.step(t.loss());
  ledger.mark_not_private("a test");
  CHECK_FALSE(engine.can_step());
  CHECK_THROWS_AS(engine.step(t.loss()), std::invalid_argument);
  CHECK(ledger.releases() == 1);
}

TEST_CASE("schedules that reach zero stop before a release, and not after one") {
  for (const bool noise : {false, true}) {
    Training t;
    Ledger ledger;
    EngineOptions options{.noise_multiplier = 1, .logical_batch = 10};
    (noise ? options.noise_schedule : options.bound_schedule) = nn::Schedule::linear(1, 0, 2);
    Engine engine(t.model, t.optimizer, population, ledger, options);
    engine.step(t.loss());
    engine.step(t.loss());
    for (int k = 0; k < 2; ++k) CHECK_THROWS_AS(engine.step(t.loss()), std::invalid_argument);
    CHECK(ledger.releases() == 2);
    CHECK(engine.steps_made() == 2);
  }
}

TEST_CASE("counts with too little noise for the calibrated multiplier are refused at once") {
  Training t;
  Ledger ledger;
  const auto make = [&](double unclipped_count_stddev) {
    Engine(
        t.model, t.optimizer, population, ledger,
        {.target_epsilon = 3,
         .steps = 4,
         .logical_batch = 10,
         .adaptive_clipping = AdaptiveClipping{.unclipped_count_stddev = unclipped_count_stddev}});
  };
  CHECK(throws([&] { make(0.2); }, "(raise unclipped_count_stddev)"));
  CHECK_NOTHROW(make(2));
}

TEST_CASE("means without noise, or with noise that has no grid, are refused and not charged") {
  Training t;
  Ledger ledger;
  Engine engine(t.model, t.optimizer, population, ledger,
                {.noise_multiplier = 1, .logical_batch = 10});
  for (const double noise : {0.0, -1.0, 1e18}) {
    CAPTURE(noise);
    CHECK_THROWS_AS(engine.release_means({.ranges = {{0, 1}},
                                          .values =
                                              [](std::span<const std::int64_t> units) {
                                                return std::vector(units.size(),
                                                                   std::vector<double>{1});
                                              },
                                          .noise_multiplier = noise}),
                    std::invalid_argument);
  }
  CHECK(ledger.releases() == 0);
  CHECK_NOTHROW(engine.step(t.loss()));
}

}  // namespace
}  // namespace sotto
