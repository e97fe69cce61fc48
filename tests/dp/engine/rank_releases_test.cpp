// Releases of several ranks besides steps, and releases and files that are refused: the same on
// every rank, and the run goes on.
#include <atomic>
#include <cstring>
#include <filesystem>

#include <sys/random.h>
#include <sys/resource.h>
#include <csignal>

#include "core/io/safetensors.h"
#include "core/ranks/collectives.h"
#include "core/ranks/rank_failure.h"
#include "dp/engine/standardize.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/sampling/sampler.h"
#include "tests/support/catch.h"
#include "tests/support/rank_training.h"
#include "tests/support/throws.h"

// The key of every generator in this program, and the id of every run of a ledger.
static std::atomic<int> key = 0x5A;
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned /*flags*/) {
  std::memset(buffer, key, size);
  return static_cast<ssize_t>(size);
}

namespace sotto {
namespace {

// Means of two statistics, of which the first depends on the unit, and which count the units.
MeanQuery query_of(std::int64_t& asked) {
  return {.ranges = {{0, 1}, {-3, 5}},
          .values =
              [&](std::span<const std::int64_t> units) {
                std::vector<std::vector<double>> values;
                for (const std::int64_t unit : units)
                  values.push_back({static_cast<double>(unit) / 7, 0.1});
                asked += std::ssize(units);
                return values;
              },
          .noise_multiplier = 4,
          .sampling_rate = 0.6};
}

// For ranks' threads, in which Catch's checks are not allowed.
void expect(bool ok, const char* what) { check(ok, "expected {}", what); }

struct Means {
  std::vector<double> all;
  std::string ledger;
  std::vector<double> weights;
  std::int64_t asked = 0;
  bool operator==(const Means&) const = default;
};

// Releases means before, between and after steps; 0 ranks: an engine without.
Means means_on(int ranks) {
  const Place place;
  std::vector<Means> of_ranks(static_cast<std::size_t>(std::max(1, ranks)));
  const auto body = [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
    Means& here = of_ranks[static_cast<std::size_t>(own->rank())];
    EngineOptions options = noisy(ranks > 0 ? own : nullptr);
    options.noise_multiplier.reset();
    options.target_epsilon = 3;
    options.planned_means = {{.noise_multiplier = 4, .sampling_rate = 0.6, .times = 2}};
    options.rows_of_unit = [](std::int64_t unit) {
      return unit % 5 == 3 ? std::vector<std::int64_t>() : std::vector{unit};
    };
    const auto create = [&] { return Ledger::create(place.path()); };
    Ledger ledger = ranks > 0 ? Ledger::on_rank_0(own, create) : create();
    Engine engine(training.model, *training.optimizer, population, ledger, options);
    const Engine::Loss loss = loss_of(training.data, training.model);
    for (int round = 0; round < 2; ++round) {
      const std::vector<double> means = engine.release_means(query_of(here.asked));
      here.all.insert(here.all.end(), means.begin(), means.end());
      engine.step(loss);
      engine.step(loss);
    }
    ledger.settle();
  };
  const auto all = train_on_ranks(std::max(1, ranks), body);
  Means found = of_ranks[0];
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    CHECK(of_ranks[rank].all == found.all);
    found.asked += of_ranks[rank].asked;
  }
  found.ledger = text_of(place.path());
  found.weights = all.back()->weights();
  return found;
}

TEST_CASE("means of several ranks are those of one, with one noise and one line in the ledger") {
  const Means alone = means_on(0);
  CHECK(alone.asked > 100);
  for (const int ranks : {1, 2, 3, 7}) {
    CAPTURE(ranks);
    const bool same = means_on(ranks) == alone;
    CHECK(same);
  }
}

// Runs the body with an engine on each of three ranks, and returns each rank's weights.
using EngineBody = std::function<void(RankTraining& training, Engine& engine, int rank)>;
std::vector<std::vector<double>> with_engines(
    const std::string& ledger_file, const EngineBody& body,
    const std::function<void(EngineOptions&)>& change = [](EngineOptions&) {}) {
  std::vector<std::vector<double>> weights;
  const auto all =
      train_on_ranks(3, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        EngineOptions options = noisy(ranks);
        change(options);
        const auto create = [&] {
          return ledger_file.empty() ? Ledger() : Ledger::create(ledger_file, {}, 1);
        };
        Engine engine(training.model, *training.optimizer, population,
                      Ledger::on_rank_0(ranks, create), options);
        body(training, engine, ranks->rank());
      });
  for (const auto& training : all) weights.push_back(training->weights());
  return weights;
}

void set_target(EngineOptions& options) {
  options.noise_multiplier.reset();
  options.target_epsilon = 2;
}

TEST_CASE("means that ranks query differently, or beyond the budget, are refused on every rank") {
  with_engines(
      "",
      [](RankTraining& training, Engine& engine, int rank) {
        std::int64_t asked = 0;
        MeanQuery query = query_of(asked);
        if (rank == 1) query.noise_multiplier = 5;
        const auto release = [&] { engine.release_means(query); };
        expect(throws(release, "noise multiplier 5"), "a refusal of other queries");
        query.noise_multiplier = 0.3;
        expect(throws(release, "release_means: epsilon would pass 2"), "a refusal of the budget");
        query.noise_multiplier = 0;
        expect(throws(release, "release_means: noise multiplier 0"), "a refusal of equal queries");
        query.noise_multiplier = 5;
        query.ranges = {{1, 0}};
        expect(throws(release, "range"), "a refusal of a range");
        expect(asked == 0, "no value");
        engine.step(loss_of(training.data, training.model));
        expect(engine.steps_made() == 1, "a step");
      },
      set_target);
}

TEST_CASE("a value that throws on one rank ends the run without a release of means") {
  const Place place;
  const auto release = [](RankTraining&, Engine& engine, int rank) {
    std::int64_t asked = 0;
    MeanQuery query = query_of(asked);
    if (rank == 2)
      query.values = [](auto) -> std::vector<std::vector<double>> {
        throw std::runtime_error("no such record");
      };
    engine.release_means(query);
  };
  CHECK(throws<std::runtime_error>([&] { with_engines(place.path(), release); }, "no such record"));
  CHECK(Ledger::open(place.path()).releases() == 0);
}

TEST_CASE("standardizing on several ranks sets the same values in every rank's layer") {
  const auto standardized = [](int ranks) {
    std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
    train_on_ranks(ranks, [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
      nn::Standardize layer(1);
      StandardizeOptions standard{.ranges = {{0, {0, 1}}}};
      standard.layer = &layer;
      EngineOptions options = noisy(own);
      options.planned_means = {planned_means(standard)};
      const Ledger ledger = Ledger::on_rank_0(own, [] { return Ledger(); });
      Engine engine(training.model, *training.optimizer, population, ledger, options);
      standardize(engine, training.data, standard);
      auto& values = found[static_cast<std::size_t>(own->rank())];
      values = layer.mean->value.to_vector<float>();
      values.push_back(layer.deviation->value.to_vector<float>()[0]);
    });
    for (const auto& of_rank : found) CHECK(of_rank == found[0]);
    return found[0];
  };
  CHECK(standardized(3) == standardized(1));
}

// Spends a lot in a run of its own, of which an open ledger does not know yet.
void spend_elsewhere(const std::string& ledger_file) {
  key = 0x5B;
  Ledger other = Ledger::open(ledger_file);
  key = 0x5A;
  other.record({.noise_multiplier = 0.4, .sampling = Sampling::poisson, .sampling_rate = 0.25}, 0);
}

TEST_CASE(
    "a step that the ledger refuses is denied on every rank, and the run can still be saved") {
  const Place place;
  const std::string state = place.path() + ".state";
  std::vector<std::vector<double>> before(3);
  const auto after = with_engines(
      place.path(),
      [&](RankTraining& training, Engine& engine, int rank) {
        const Engine::Loss loss = loss_of(training.data, training.model);
        engine.step(loss);
        before[static_cast<std::size_t>(rank)] = training.weights();
        const SamplerState position = engine.sampler().state();
        bool spent = rank != 0;
        const auto step = [&] {
          engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
            if (!std::exchange(spent, true)) spend_elsewhere(place.path());
            return loss(tape, rows);
          });
        };
        expect(throws(step, "the budget allows no more"), "a refusal on every rank");
        expect(engine.steps_made() == 1 && !engine.can_step(), "no further step");
        expect(rank != 0 || engine.sampler().state().number == position.number, "no draw");
        expect(throws([&] { engine.step(loss); }, "no step left"), "a refusal before the draw");
        save_checkpoint(state, training.model, *training.optimizer, engine);
      },
      set_target);
  CHECK((after == before));
  CHECK(std::filesystem::exists(state));
}

TEST_CASE("a budget that is spent elsewhere ends the steps of all ranks") {
  for (const bool known : {false, true}) {  // to rank 0, which has read the ledger before the step
    CAPTURE(known);
    const Place place;
    with_engines(
        place.path(),
        [&](RankTraining& training, Engine& engine, int rank) {
          const Engine::Loss loss = loss_of(training.data, training.model);
          expect(engine.next_step(loss).has_value(), "a step");
          if (rank == 0) spend_elsewhere(place.path());
          if (known)
            save_checkpoint(place.path() + ".state", training.model, *training.optimizer, engine);
          expect(!engine.next_step(loss) && !engine.can_step(), "the end on every rank");
          expect(engine.steps_made() == 1, "no further step");
        },
        set_target);
  }
}

TEST_CASE("a full disk at the ledger is an error on every rank, before any update") {
  const Place place;
  std::vector<std::vector<double>> before(3);
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const auto after =
      with_engines(place.path(), [&](RankTraining& training, Engine& engine, int rank) {
        const Engine::Loss loss = loss_of(training.data, training.model);
        engine.step(loss);
        before[static_cast<std::size_t>(rank)] = training.weights();
        const auto step = [&] {
          engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
            if (rank == 0) {
              rlimit full = old;
              full.rlim_cur = std::filesystem::file_size(place.path());
              setrlimit(RLIMIT_FSIZE, &full);
            }
            return loss(tape, rows);
          });
        };
        expect(throws<SystemFailure>(step, "ledger"), "an error on every rank");
        expect(engine.steps_made() == 1, "no further step");
      });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK((after == before));
  CHECK(Ledger::open(place.path()).releases() == 1);
}

TEST_CASE("a rank without memory for one unit ends the step on every rank, without a release") {
  const Place place;
  CHECK_THROWS_AS(with_engines(place.path(),
                               [](RankTraining& training, Engine& engine, int rank) {
                                 const Engine::Loss loss = loss_of(training.data, training.model);
                                 engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
                                   if (rank == 1) throw std::bad_alloc();
                                   return loss(tape, rows);
                                 });
                               }),
                  std::bad_alloc);
  CHECK(Ledger::open(place.path()).releases() == 0);
}

// Writes checkpoints that cannot be loaded beside `good`: a damaged one, one with an average, one
// without an entry of the optimizer, one with a parameter of another shape, and one of another run.
std::vector<std::string> unloadable(const std::string& good) {
  std::vector<std::string> files;
  const auto next = [&](const TensorFile& file) {
    files.push_back(good + std::to_string(files.size()));
    save_safetensors(files.back(), file);
  };
  TensorFile file = load_safetensors(good);
  next(file);
  std::filesystem::resize_file(files[0], std::filesystem::file_size(files[0]) / 2);
  file.tensors["moving_average.more"] = zeros({1});
  next(file);
  file = load_safetensors(good);
  file.tensors.erase("optimizer.1.weight.mean");
  next(file);
  file = load_safetensors(good);
  file.tensors.at("model.3.bias") = zeros({11});
  next(file);
  file = load_safetensors(good);
  for (auto& [key, value] : file.metadata)
    if (key.find("engine") != std::string::npos) value = "{}";
  next(file);
  return files;
}

TEST_CASE("a checkpoint that cannot be loaded is an error on every rank and changes nothing") {
  const auto trained = [](bool with_bad_files) {
    const Place place;
    const std::string state = place.path() + ".state";
    std::vector<std::string> files;
    return with_engines(place.path(), [&](RankTraining& training, Engine& engine, int /*rank*/) {
      const Engine::Loss loss = loss_of(training.data, training.model);
      engine.step(loss);
      save_checkpoint(state, training.model, *training.optimizer, engine);
      engine.step(loss);
      on_rank_0(*engine.ranks(), "files", [&] {
        if (with_bad_files) files = unloadable(state);
      });
      for (int k = 0; with_bad_files && k < 5; ++k) {
        const std::string file = state + std::to_string(k);
        const auto load = [&] {
          load_checkpoint(file, training.model, *training.optimizer, engine);
        };
        expect(throws<std::exception>(load, ""), "an error on every rank");
        expect(engine.steps_made() == 2, "the step as it was");
      }
      engine.step(loss);
    });
  };
  const bool same = trained(true) == trained(false);
  CHECK(same);
}

}  // namespace
}  // namespace sotto
