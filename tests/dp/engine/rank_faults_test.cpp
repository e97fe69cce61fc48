// Planted faults of engines on several ranks: each is an error that names it, on every rank.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>

#include "autograd/ops.h"
#include "core/io/safetensors.h"
#include "core/ranks/rank_failure.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/clipper_state.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/poisson_samplers.h"
#include "dp/sampling/sampler.h"
#include "nn/optim/shard_buckets.h"
#include "tests/support/catch.h"
#include "tests/support/rank_errors.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

Ledger in_memory(const std::shared_ptr<Ranks>& ranks) {
  return Ledger::on_rank_0(ranks, [] { return Ledger(); });
}

// The errors of making an engine when rank 2 has something of its own.
std::vector<std::string> errors_with(
    const std::function<void(RankTraining&, EngineOptions&)>& change) {
  return rank_errors(3,
                     [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
                       const Ledger ledger = in_memory(ranks);
                       EngineOptions options = noisy(ranks);
                       if (ranks->rank() == 2) change(training, options);
                       Engine(training.model, *training.optimizer, population, ledger, options);
                     })
      .texts;
}

TEST_CASE("an option, weight or rate of one rank alone is an error that names it on every rank") {
  const auto bound = errors_with([](auto&, EngineOptions& options) { options.clip_bound = 2; });
  CHECK(all_ranks_say(bound, "clip bound is 2 for"));
  CHECK(all_ranks_say(bound, "on rank 2 and 1 for"));
  CHECK(all_ranks_say(errors_with([](auto&, EngineOptions& options) { options.delta = 1e-6; }),
                      "delta is 1e-06 on rank 2 and 1e-05 on rank 0"));
  CHECK(
      all_ranks_say(errors_with([](auto&, EngineOptions& options) { options.seed = 1; }), "seed"));
  CHECK(all_ranks_say(errors_with([](auto&, EngineOptions& options) {
                        options.noise_multiplier.reset();
                        options.target_epsilon = 1;
                      }),
                      "noise_multiplier is unset on rank 2 and 1 on rank 0"));
  CHECK(all_ranks_say(
      errors_with([](auto&, EngineOptions& options) { options.memory.physical_batch = 8; }),
      "physical_batch is 8 on rank 2"));
  CHECK(all_ranks_say(errors_with([](RankTraining& training, auto&) {
                        training.model.parameters()[0]->value.data<float>()[17] += 0x1p-20F;
                      }),
                      "parameter 1.weight"));
  CHECK(all_ranks_say(errors_with([](RankTraining& training, auto&) {
                        training.optimizer->set_learning_rate(0.02);
                      }),
                      "optimizer's group is rate 0.02"));
  CHECK(all_ranks_say(
      errors_with([](auto&, EngineOptions& options) { options.memory.checkpoint = 2; }),
      "checkpoint is 2 on rank 2"));
  CHECK(all_ranks_say(errors_with([](auto&, EngineOptions& options) {
                        options.rows_of_unit = [](std::int64_t) -> std::vector<std::int64_t> {
                          throw std::runtime_error("no rows here");
                        };
                      }),
                      "no rows here"));
  CHECK(all_ranks_say(errors_with([](auto&, EngineOptions& options) { options.steps = -1; }),
                      "rank 2: -1 steps"));
}

TEST_CASE("the order of parameters within a clip group is compared") {
  const RankErrors all =
      rank_errors(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        EngineOptions options = noisy(ranks);
        options.groups = {{.parameters = training.model.parameters(), .bound = 1}};
        if (ranks->rank() == 1) std::ranges::reverse(options.groups[0].parameters);
        Engine(training.model, *training.optimizer, population, in_memory(ranks), options);
      });
  CHECK(all_ranks_say(all.texts, "clip bound is 1 for 3.bias"));
}

TEST_CASE("one charge of several ranks pays for no sum of one rank alone") {
  const RankErrors all = rank_errors(2, [&](RankTraining&, const std::shared_ptr<Ranks>& ranks) {
    Ledger ledger = in_memory(ranks);
    PoissonSampler sampler(population, 0.5);
    StatisticSum sum({{0, 1}});
    const std::vector<double> value{0.5};
    SampledBatch draw = sampler.draw();
    for (std::size_t k = 0; k < draw.units().size(); ++k) sum.add(value);
    GaussianMechanism(1).release(sum.finish(std::move(draw)), ledger);
  });
  CHECK(all_ranks_say(all.texts, "a sum of one rank with a ledger of several ranks"));
}

TEST_CASE("values that one rank changes between steps end the next step") {
  const RankErrors all = rank_errors(2, [&](RankTraining& training,
                                            const std::shared_ptr<Ranks>& ranks) {
    Engine engine(training.model, *training.optimizer, population, in_memory(ranks), noisy(ranks));
    const auto step = [&] {
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        const Dataset batch = training.data.batch(rows);
        return cross_entropy(training.model(tape.input(batch.inputs)), batch.targets);
      });
    };
    step();
    if (ranks->rank() == 1) training.model.parameters()[0]->value.data<float>()[17] += 0x1p-20F;
    step();
  });
  CHECK(all_ranks_say(all.texts, "other values of the parameters"));
}

TEST_CASE("what several ranks cannot do is refused when the engine is made") {
  const auto refused = [](const std::function<void(EngineOptions&)>& change,
                          std::string_view part) {
    const RankErrors all =
        rank_errors(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
          EngineOptions options = noisy(ranks);
          change(options);
          Engine(training.model, *training.optimizer, population, in_memory(ranks), options);
        });
    return all_ranks_say(all.texts, part);
  };
  const auto limit_on_rank_1 = [](EngineOptions& options) {
    if (options.ranks->rank() == 1) options.memory.limit = 1 << 30;
  };
  CHECK(refused(limit_on_rank_1, "memory limit is 1073741824 on rank 1 and 0 on rank 0"));
  CHECK(refused([](EngineOptions& o) { o.noise = GaussianNoise::floating_point; },
                "floating-point noise"));
  const RankErrors lamb =
      rank_errors(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        nn::Lamb optimizer(training.model, {.weight_decay = 0.1 * ranks->rank()});
        Engine(training.model, optimizer, population, in_memory(ranks), noisy(ranks));
      });
  CHECK(all_ranks_say(lamb.texts, "optimizer's group is"));
  const RankErrors apart =
      rank_errors(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        Engine(training.model, *training.optimizer, population, Ledger(), noisy(ranks));
      });
  CHECK(all_ranks_say(apart.texts, "Ledger::on_rank_0"));
}

TEST_CASE("a ledger that rank 0 cannot open is an error on every rank") {
  const Place place;
  const auto body = [&](RankTraining&, const std::shared_ptr<Ranks>& ranks) {
    Ledger::on_rank_0(ranks, [&] { return Ledger::open(place.path()); });
  };
  CHECK(all_ranks_say(rank_errors(3, body).texts, place.path()));
}

TEST_CASE("only rank 0 has the ledger, its epsilon and the secret state") {
  const auto body = [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
    Ledger ledger = in_memory(ranks);
    Engine engine(training.model, *training.optimizer, population, ledger, noisy(ranks));
    const TensorFile state = engine.state();
    check(state.metadata.empty() == (ranks->rank() != 0), "state: on rank {}", ranks->rank());
    if (ranks->rank() == 0) return;
    CHECK(throws([&] { engine.epsilon(); }, "rank 0"));
    CHECK(throws([&] { engine.report(); }, "rank 0"));
    CHECK(throws([&] { (void)ledger.history(); }, "rank 0"));
    CHECK(throws([&] { ledger.mark_not_private("no reason"); }, "rank 0"));
    CHECK(throws([&] { (void)ledger.new_run(); }, "rank 0"));
  };
  CHECK(rank_errors(2, body).texts == std::vector<std::string>(2));
}

// Trains until the step in which `fault` acts on rank 2, at the loss. Returns the errors, and
// checks that no rank's weights changed in that step.
std::vector<std::string> faulty_step(const std::string& ledger_file,
                                     const std::function<void()>& fault) {
  std::vector<std::vector<double>> before(3);
  const RankErrors all =
      rank_errors(3, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        const auto rank = static_cast<std::size_t>(ranks->rank());
        const Ledger ledger =
            Ledger::on_rank_0(ranks, [&] { return Ledger::create(ledger_file, {}, 1); });
        Engine engine(training.model, *training.optimizer, population, ledger, noisy(ranks));
        const Engine::Loss loss = loss_of(training.data, training.model);
        engine.step(loss);
        engine.step(loss);
        before[rank] = training.weights();
        engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
          if (rank == 2) fault();
          return loss(tape, rows);
        });
      });
  // A rank may hear of the failure while it still receives the results of the step before.
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const bool unchanged = all.trainings[rank]->weights() == before[rank];
    CHECK((unchanged || before[rank].empty()));
  }
  return all.texts;
}

TEST_CASE("a loss that throws on one rank ends the step on every rank, without a release") {
  const Place place;
  CHECK(
      all_ranks_say(faulty_step(place.path(), [] { throw std::runtime_error("no such picture"); }),
                    "no such picture"));
  CHECK(Ledger::open(place.path()).releases() == 2);
}

TEST_CASE("a ledger that cannot be written ends the step on every rank before any update") {
  const Place place;
  CHECK(all_ranks_say(
      faulty_step(place.path(), [&] { std::ofstream(place.path()) << "another file\n"; }),
      place.path()));
}

// Clips 8 units on two ranks, of which each `begin`s the blocks that it is told.
std::vector<std::string> clip_errors(
    const std::function<std::pair<std::size_t, std::size_t>(int rank)>& blocks,
    const std::function<void(int rank, Clipper&)>& change) {
  return rank_errors(2,
                     [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
                       Clipper clipper(flat_group(training.model.parameters(), 1));
                       change(ranks->rank(), clipper);
                       FullBatchSampler sampler(8);
                       const auto shards =
                           std::make_shared<nn::Shards>(ranks, training.optimizer->parameters());
                       SampledBatch draw = sampler.draw();
                       const auto [first, end] = blocks(ranks->rank());
                       const SumBlocks own(draw.units().subspan(first, end - first), {},
                                           {.units = 1});
                       clipper.state().share(shards);
                       clipper.state().begin(own);
                       clipper.add_zeros(std::ssize(own.units()));
                       clipper.finish(std::move(draw));
                     })
      .texts;
}

TEST_CASE("units that two ranks clip, or none, and bounds that differ are refused in each step") {
  const auto none = [](int, Clipper&) {};
  const auto halves = [](int rank) {
    return rank == 0 ? std::pair<std::size_t, std::size_t>(0, 4)
                     : std::pair<std::size_t, std::size_t>(4, 8);
  };
  CHECK(clip_errors(halves, none) == std::vector<std::string>(2));
  const auto by_nobody = [&](int rank) {
    return rank == 0 ? halves(0) : std::pair<std::size_t, std::size_t>(5, 8);
  };
  CHECK(all_ranks_say(clip_errors(by_nobody, none),
                      "8 units were drawn, and 7 clipped by all ranks"));
  const auto twice = [&](int rank) {
    return rank == 0 ? halves(0) : std::pair<std::size_t, std::size_t>(3, 7);
  };
  CHECK(all_ranks_say(clip_errors(twice, none), "clipped by several ranks and some by none"));
  const auto other_bound = [](int rank, Clipper& clipper) {
    if (rank == 1) clipper.set_bounds({3});
  };
  CHECK(all_ranks_say(clip_errors(halves, other_bound), "rank 1 clips with other bounds"));
}

TEST_CASE("messages that arrive in another order change no bit") {
  const auto trained = [](std::vector<double> latencies) {
    ThreadRanksOptions options;
    options.rank_latency_seconds = std::move(latencies);
    std::vector<double> summed;
    train_on_ranks(
        3,
        [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
          const auto shards = std::make_shared<nn::Shards>(ranks, training.optimizer->parameters());
          const std::vector<Parameter*> parameters = training.model.parameters();
          nn::SumsToOwners sums(shards, parameters);
          for (Parameter* parameter : parameters) {
            // Floating-point sums of three such numbers depend on the order.
            const Tensor sum = to_dtype(parameter->value, Dtype::f64);
            const double factor = std::pow(1.7, ranks->rank());
            sums.give(*parameter, scale(sum, factor));
          }
          for (const auto& [parameter, total] : sums.totals(parameters)) {
            const Tensor all = shards->whole(*parameter, total);
            if (ranks->rank() != 0) continue;
            const auto values = all.to_vector<double>();
            summed.insert(summed.end(), values.begin(), values.end());
          }
        },
        options);
    return summed;
  };
  const bool same = trained({}) == trained({0.02, 0, 0.01});
  CHECK(same);
}

// The mean of the products of two lists' elements, in units of the product of their deviations.
double correlation(std::span<const double> x, std::span<const double> y) {
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t k = 0; k < std::min(x.size(), y.size()); ++k) {
    xy += x[k] * y[k];
    xx += x[k] * x[k];
    yy += y[k] * y[k];
  }
  return xy / std::sqrt(xx * yy);
}

constexpr std::int64_t elements_with_noise = std::int64_t{1} << 20;

struct NoiseOfSteps {
  std::vector<double> first, second;
  double deviation = 0;  // by the multiplier and the sensitivity
};

// The updates of two steps by four ranks on units whose gradients are zero.
NoiseOfSteps noise_of_four_ranks() {
  NoiseOfSteps noise;
  on_thread_ranks(4, [&](Ranks& own) {
    const std::shared_ptr<Ranks> ranks(std::shared_ptr<void>(), &own);
    nn::Linear model(elements_with_noise, 1, {.bias = false});
    model.weight->value = zeros({1, elements_with_noise});
    nn::Sgd optimizer(model, {.learning_rate = 1});
    EngineOptions options{.noise_multiplier = 2, .delta = 1e-3, .logical_batch = 10};
    options.ranks = ranks;
    options.rows_of_unit = [](std::int64_t) { return std::vector<std::int64_t>(); };
    Engine engine(model, optimizer, 100, in_memory(ranks), options);
    const auto unused = [](Tape& tape, auto) { return tape.constant(zeros({0})); };
    engine.step(unused);
    const auto after_first = to_dtype(model.weight->value, Dtype::f64).to_vector<double>();
    engine.step(unused);
    if (own.rank() != 0) return;
    noise.first = after_first;
    noise.second = to_dtype(model.weight->value, Dtype::f64).to_vector<double>();
    for (std::size_t k = 0; k < after_first.size(); ++k) noise.second[k] -= after_first[k];
    noise.deviation = 2 * engine.clipper().sensitivity() / 10;
  });
  return noise;
}

// Kolmogorov and Smirnov's statistic of a normal distribution.
double distance_from_normal(std::vector<double> values, double deviation) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double apart = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const double expected = std::erfc(-values[k] / deviation / std::sqrt(2.0)) / 2;
    apart = std::max(apart, std::abs(expected - (static_cast<double>(k) + 0.5) / n));
  }
  return apart;
}

TEST_CASE("four ranks draw noise once, of the whole sensitivity, and independently") {
  const auto [first, second, deviation] = noise_of_four_ranks();
  constexpr double n = elements_with_noise;
  double mean = 0, square = 0;
  for (const double x : first) mean += x / n;
  for (const double x : first) square += x * x / n;
  CHECK(std::abs(mean) < 5 * deviation / std::sqrt(n));
  CHECK(std::abs(std::sqrt(square) / deviation - 1) < 5 / std::sqrt(2 * n));
  CHECK(distance_from_normal(first, deviation) < 2.5 / std::sqrt(n));
  const double limit = 5 / std::sqrt(n / 4);
  CHECK(std::abs(correlation(first, second)) < limit);
  constexpr auto quarter = static_cast<std::size_t>(elements_with_noise / 4);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < a; ++b)
      CHECK(std::abs(correlation(std::span(first).subspan(a * quarter, quarter),
                                 std::span(first).subspan(b * quarter, quarter))) < limit);
}

}  // namespace
}  // namespace sotto
