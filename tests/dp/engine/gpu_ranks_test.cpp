// An engine on several ranks with GPUs: where a unit's gradient has the same bits in every row of a
// batch, the same bits for every number of ranks.
// File tags: [gpus]
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>

#include <sys/random.h>

#include "core/devices.h"
#include "dp/engine/training_checkpoint.h"
#include "memory/accumulation.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/rank_sink.h"
#include "nn/optim/shard_buckets.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/left_out_unit.h"
#include "tests/support/rank_outcome.h"
#include "tests/support/throws.h"

// The key of every generator in this program.
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned /*flags*/) {
  std::memset(buffer, 0x5A, size);
  return static_cast<ssize_t>(size);
}

namespace sotto {
namespace {

bool pretended() { return devices().size() > 1 && pretended_counts(); }

// For ranks' threads.
void expect(bool ok, const char* what) { check(ok, "expected {}", what); }

EngineOptions small_batches(Sampling sampling = Sampling::poisson) {
  EngineOptions options = options_of(sampling);
  options.noise_multiplier = 1;
  options.steps = sampling == Sampling::planned ? steps : 3;
  options.memory.physical_batch = 16;
  return options;
}

// Moves the rank's model, of another kind, to its GPU.
Device put_on_gpu(RankTraining& training, Ranks& ranks) {
  static std::mutex seeding;
  std::unique_lock lock(seeding);
  nn::manual_seed(2);
  training.model = nn::Sequential{nn::Linear(784, 12), nn::Linear(784, 10)};
  training.optimizer =
      std::make_unique<nn::Adam>(training.model, nn::AdamRule<false>{.learning_rate = 0.01});
  lock.unlock();
  const Device device = gpu_of_rank(ranks);
  training.model.to(device);
  return device;
}

// A loss whose gradients are the inputs. A product in it may have other last bits in other rows of
// a batch, which would hide what is tested.
Engine::Loss loss_there(RankTraining& training) {
  return [&](Tape& tape, std::span<const std::int64_t> rows) {
    const Device device = training.model.parameters()[0]->value.device();
    const Tensor images = reshape(training.data.batch(rows).inputs, {std::ssize(rows), 784});
    const Var x = tape.input(images.to(device));
    return sum_per_sample(training.model[0](x)) + 0.5 * sum_per_sample(training.model[1](x));
  };
}

RankProgram on_gpus() {
  return {.prepare = [](RankTraining& training, Ranks& ranks) { put_on_gpu(training, ranks); },
          .loss = loss_there,
          .end =
              [](RankTraining& training) {
                for (const Parameter* parameter : training.model.parameters())
                  expect(parameter->value.device() != cpu, "the weights where they were");
              }};
}

// The outcome on `ranks` ranks with GPUs; 0: by an engine without ranks.
Outcome outcome(int ranks, const OptionsFor& options, const LedgerHeader& header = {},
                const InLoss& in_loss = {}) {
  return outcome_of(on_gpus(), ranks, options, header, in_loss);
}

void check_every_number_of_ranks(const OptionsFor& options, const LedgerHeader& header = {},
                                 const std::vector<int>& numbers = {2, 3}) {
  check_numbers_of_ranks(on_gpus(), options, header, numbers);
}

TEST_CASE("the ranks of a host take its GPUs in turn") {
  const int gpus = static_cast<int>(devices().size()) - 1;
  if (gpus == 0) {
    CHECK(throws([] { on_thread_ranks(2, [](Ranks& ranks) { gpu_of_rank(ranks); }); }, "cuda: "));
    return;
  }
  std::vector<int> taken(5);
  on_thread_ranks(5, [&](Ranks& ranks) {
    taken[static_cast<std::size_t>(ranks.rank())] = gpu_of_rank(ranks).index;
  });
  for (int rank = 0; rank < 5; ++rank) CHECK(taken[static_cast<std::size_t>(rank)] == rank % gpus);
}

TEST_CASE("every number of ranks with GPUs trains the same bits, with one noise and one ledger") {
  if (!pretended()) return;
  for (const bool layers : {false, true}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      CAPTURE(layers, passes == ClipPasses::two);
      check_every_number_of_ranks(
          [&](RankTraining& training) {
            EngineOptions options = small_batches();
            if (layers) options.groups = layer_groups(training.model.named_parameters(), 0.7);
            options.passes = passes;
            return options;
          },
          {}, {1, 2, 3});
    }
  }
}

TEST_CASE(
    "every rank with a GPU computes its part of each batch, in physical batches of its size") {
  if (devices().size() < 2) return;
  std::array<std::atomic<std::size_t>, 2> largest{}, batches{};
  const auto note = [&](int rank, std::size_t rows) {
    const auto k = static_cast<std::size_t>(rank);
    ++batches[k];
    if (rows > largest[k]) largest[k] = rows;
  };
  const auto options = [](RankTraining&) {
    EngineOptions options = small_batches(Sampling::full_batch);
    options.memory.physical_batch.reset();
    return options;
  };
  outcome(0, options, {}, note);
  CHECK(batches[0] == 3);
  CHECK(largest[0] == population);
  batches[0] = largest[0] = 0;
  outcome(2, options, {}, note);
  for (const std::size_t rank : {0, 1}) {
    CHECK(batches[rank] > 0);
    CHECK(batches[rank] <= 2 * 3);
    CHECK(largest[rank] < population * 3 / 4);
  }
}

TEST_CASE("bounds and loss scales that move are the same on several ranks with GPUs") {
  if (!pretended()) return;
  check_every_number_of_ranks([](RankTraining& training) {
    EngineOptions options = small_batches();
    options.groups = layer_groups(training.model.named_parameters(), 0.7);
    options.adaptive_clipping = {.quantile = 0.4};
    options.loss_scaling = {.adjust = memory::LossScaling::Adjust::on_release, .first = 4};
    options.memory.precision = Dtype::f16;
    return options;
  });
}

TEST_CASE(
    "optimizers that need whole parameters, and f64, are the same on several ranks with GPUs") {
  if (!pretended()) return;
  check_every_number_of_ranks([&](RankTraining& training) {
    training.optimizer = std::make_unique<nn::Lamb>(
        training.model, nn::LambRule{.learning_rate = 0.01, .weight_decay = 0.1});
    return small_batches();
  });
  // Rank-order sums of f64 weights are rounded: only near to those of one rank.
  const auto wide = [](RankTraining& training) {
    for (Parameter* parameter : training.model.parameters())
      parameter->value = to_dtype(parameter->value, Dtype::f64);
    training.data.inputs = to_dtype(training.data.inputs, Dtype::f64);
    training.optimizer = std::make_unique<nn::Sgd>(training.model, nn::SgdRule{});
    return small_batches();
  };
  const Outcome alone = outcome(0, wide), together = outcome(3, wide);
  CHECK(together.ledger == alone.ledger);
  for (std::size_t k = 0; k < alone.weights.size(); ++k)
    CHECK(together.weights[k] == Approx(alone.weights[k]).margin(1e-9));
}

TEST_CASE("correlated noise is the same on several ranks with GPUs") {
  if (!pretended()) return;
  check_every_number_of_ranks([](RankTraining&) { return small_batches(Sampling::planned); }, {},
                              {2});
}

TEST_CASE("more ranks with GPUs than units, and empty ranks, are no exception") {
  if (!pretended()) return;
  check_every_number_of_ranks(
      [](RankTraining&) {
        EngineOptions options = small_batches();
        options.logical_batch = 0.7;
        return options;
      },
      {}, {5});
}

TEST_CASE("a rank whose GPU has no memory halves its physical batches, and the run goes on") {
  if (!pretended()) return;
  std::atomic<int> thrown = 0;
  const auto starved = [&](int rank, std::size_t rows) {
    if (rank != 1 || rows <= 4) return;
    ++thrown;
    throw std::bad_alloc();
  };
  const auto options = [](RankTraining&) { return small_batches(); };
  check_same(outcome(3, options, {}, starved), outcome(0, options));
  CHECK(thrown > 0);
}

// Makes steps on `ranks` ranks (0: without) from the checkpoint `file`, if there is one, and saves
// another.
void go_on(Sampling sampling, int ranks, const std::string& ledger_file, const std::string& file,
           std::int64_t steps_to_make, bool on_gpus) {
  const bool resumed = std::filesystem::exists(file);
  train_on_ranks(
      std::max(1, ranks), [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
        const Device device = put_on_gpu(training, *own);
        if (!on_gpus) training.model.to(cpu);
        check(training.model.parameters()[0]->value.device() == (on_gpus ? device : cpu), "placed");
        EngineOptions options = small_batches(sampling);
        options.steps = steps;
        const auto open = [&] {
          return resumed ? Ledger::resume(ledger_file, checkpoint_mark(file))
                         : Ledger::create(ledger_file, header_for(sampling));
        };
        if (ranks > 0) options.ranks = own;
        const Ledger ledger = ranks > 0 ? Ledger::on_rank_0(own, open) : open();
        Engine engine(training.model, *training.optimizer, population, ledger, options);
        nn::MovingAverage average(training.model, 0.9);
        if (resumed) load_checkpoint(file, training.model, *training.optimizer, engine, &average);
        for (std::int64_t step = 0; step < steps_to_make; ++step) {
          engine.step(loss_there(training));
          average.update();
        }
        save_checkpoint(file, training.model, *training.optimizer, engine, ledger, &average);
      });
}

TEST_CASE("a checkpoint of ranks with GPUs is the same file for every number, and any resumes it") {
  if (!pretended()) return;
  for (const Sampling sampling : {Sampling::poisson, Sampling::planned}) {
    const Place place;
    const std::string ledger = place.path(), file = ledger + ".state";
    const auto files = [&](int first, int then, bool on_gpus_then = true) {
      std::filesystem::remove(ledger);
      std::filesystem::remove(file);
      go_on(sampling, first, ledger, file, 3, true);
      const std::string between = text_of(file);
      go_on(sampling, then, ledger, file, 2, on_gpus_then);
      return std::pair(between, text_of(file));
    };
    const auto alone = files(0, 0);
    for (const auto& [first, then] : {std::pair(2, 3), {3, 0}, {1, 2}}) {
      CAPTURE(first, then);
      const bool same = files(first, then) == alone;
      CHECK(same);
    }
    // On CPUs, which round sums to another grid: a plan of correlated noise stays with its grid.
    if (sampling == Sampling::poisson) CHECK((files(2, 3, false).first == alone.first));
  }
}

TEST_CASE("leaving one unit out moves the sum of ranks with GPUs by its sensitivity at most") {
  if (devices().size() > 1) check_left_out_units(true);
}

TEST_CASE("an ordinary training on ranks with GPUs has the same bits on each, near those of one") {
  if (devices().size() < 2) return;
  const auto trained = [](int size) {
    return train_on_ranks(size, [](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
      put_on_gpu(training, *ranks);
      nn::broadcast_values(*ranks, training.model.parameters());
      memory::Accumulation accumulation({.physical_batch = 16}, training.model, *ranks);
      std::vector<std::int64_t> own;
      for (std::int64_t row = 0; row < population; ++row)
        if (row % ranks->size() == ranks->rank()) own.push_back(row);
      for (int step = 0; step < 3; ++step) {
        const auto mean = accumulation.mean_gradient(
            [&](Tape& tape, std::span<const std::int64_t> rows) {
              return loss_there(training)(tape, rows);
            },
            own, *training.optimizer);
        training.optimizer->step(mean.gradients);
      }
    });
  };
  const std::vector<double> alone = trained(1)[0]->weights();
  for (const int ranks : {2, 3}) {
    const auto all = trained(ranks);
    for (const auto& training : all) {
      const bool same_on_every_rank = training->weights() == all[0]->weights();
      CHECK(same_on_every_rank);
    }
    const std::vector<double> together = all[0]->weights();
    for (std::size_t k = 0; k < alone.size(); ++k)
      CHECK(together[k] == Approx(alone[k]).margin(1e-3));
  }
}

TEST_CASE(
    "sums go to their owners and values come from them, also of parameters that travel alone") {
  for (const DeviceInfo& info : devices()) {
    on_thread_ranks(3, [&](Ranks& own) {
      const Device device = info.device == cpu ? cpu : gpu_of_rank(own);
      const std::shared_ptr<Ranks> ranks(std::shared_ptr<void>(), &own);
      Parameter large(zeros({nn::bucket_elements + 5}, Dtype::f32, device));
      Parameter small(zeros({3000}, Dtype::f32, device));
      Parameter wide(zeros({7}, Dtype::f64, device));
      std::vector<Parameter*> all{&large, &small, &wide};
      const auto shards = std::make_shared<const nn::Shards>(
          ranks, std::vector<const Parameter*>(all.begin(), all.end()));
      nn::SumsToOwners sums(shards, all);
      for (Parameter* parameter : all)
        sums.give(*parameter, full(parameter->value.shape(), own.rank() + 1, Dtype::f64, device));
      nn::ValuesFromOwners values(*shards, all);
      for (const auto& [parameter, total] : sums.totals(all)) {
        const nn::ElementRange range = shards->range(*parameter);
        expect(total.shape() == Shape{range.size()} && total.device() == device, "the own part");
        const Tensor own_part = parameter->value.slice(0, range.first, range.end);
        copy_into(to_dtype(total, own_part.dtype()), own_part);
        values.updated(*parameter);
      }
      values.wait();
      for (const Parameter* parameter : all) {
        const auto found = to_dtype(parameter->value, Dtype::f64).to_vector<double>();
        expect(found == std::vector<double>(found.size(), 1 + 2 + 3), "the sum of all ranks");
      }
    });
  }
}

TEST_CASE(
    "ranks on other devices, and parameters on several, are refused when the engine is made") {
  if (devices().size() < 2) return;
  const auto made = [](const std::function<void(RankTraining&, Ranks&)>& place) {
    train_on_ranks(2, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
      place(training, *ranks);
      const Ledger ledger = Ledger::on_rank_0(ranks, [] { return Ledger(); });
      Engine(training.model, *training.optimizer, population, ledger, noisy(ranks));
    });
  };
  const Device gpu{DeviceKind::cuda, 0};
  CHECK(throws(
      [&] {
        made([&](RankTraining& training, Ranks& ranks) {
          if (ranks.rank() == 1) training.model.to(gpu);
        });
      },
      "device is a GPU, "));
  CHECK(throws(
      [&] {
        made([&](RankTraining& training, Ranks&) {
          Parameter* const last = training.model.parameters().back();
          training.model.to(gpu);
          last->value = last->value.to(cpu);
        });
      },
      "not on the cuda:0"));
}

}  // namespace
}  // namespace sotto
