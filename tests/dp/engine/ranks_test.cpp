// An engine on several ranks: the same bits for every number of ranks.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <new>

#include <sys/random.h>

#include "autograd/ops.h"
#include "core/ranks/rank_failure.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/train.h"
#include "dp/engine/training_checkpoint.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
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

// The options of a sampling with small physical batches, so that a batch has several blocks.
EngineOptions small_batches(Sampling sampling = Sampling::poisson) {
  EngineOptions options = options_of(sampling);
  options.noise_multiplier = 1;
  options.memory.physical_batch = 16;
  return options;
}

Outcome outcome(int ranks, const OptionsFor& options, const LedgerHeader& header = {},
                const InLoss& in_loss = {}) {
  return outcome_of({}, ranks, options, header, in_loss);
}

void check_every_number_of_ranks(const OptionsFor& options, const LedgerHeader& header = {},
                                 const std::vector<int>& numbers = {1, 2, 3, 4, 7}) {
  check_numbers_of_ranks({}, options, header, numbers);
}

TEST_CASE("every number of ranks trains the same bits") {
  check_every_number_of_ranks([](RankTraining&) {
    EngineOptions options = small_batches();
    options.steps = 20;
    return options;
  });
}

TEST_CASE("every sampling is the same on several ranks") {
  for (const Sampling sampling : all_samplings) {
    CAPTURE(name(sampling));
    check_every_number_of_ranks([&](RankTraining&) { return small_batches(sampling); },
                                header_for(sampling), {3});
  }
}

TEST_CASE("every clipping rule and every group is the same on several ranks") {
  for (const ClipRule::Kind kind :
       {ClipRule::Kind::minimum, ClipRule::Kind::opacus, ClipRule::Kind::normalize,
        ClipRule::Kind::auto_s, ClipRule::Kind::psac}) {
    for (const bool layers : {false, true}) {
      CAPTURE(kind, layers);
      check_every_number_of_ranks(
          [&](RankTraining& training) {
            EngineOptions options = small_batches();
            options.steps = 3;
            options.clipping.rule = {.kind = kind};
            if (layers) options.groups = layer_groups(training.model.named_parameters(), 0.7);
            return options;
          },
          {}, {3});
    }
  }
}

TEST_CASE("bounds, noise and loss scales that move are the same on several ranks") {
  const auto adaptive = [](RankTraining& training) {
    EngineOptions options = small_batches();
    options.groups = layer_groups(training.model.named_parameters(), 0.7);
    options.adaptive_clipping = {.quantile = 0.4};
    options.loss_scaling = {.adjust = memory::LossScaling::Adjust::on_release, .first = 4};
    options.memory.precision = Dtype::f16;
    return options;
  };
  check_every_number_of_ranks(adaptive, {}, {2, 4});
  const auto scheduled = [](RankTraining&) {
    EngineOptions options = small_batches();
    options.bound_schedule = nn::Schedule::exponential(0.9);
    options.noise_schedule = nn::Schedule::exponential(0.95);
    options.passes = ClipPasses::two;
    return options;
  };
  check_every_number_of_ranks(scheduled, {}, {3});
}

TEST_CASE("a target epsilon is met by the same steps on several ranks") {
  const auto target = [](RankTraining&) {
    EngineOptions options = small_batches();
    options.noise_multiplier.reset();
    options.target_epsilon = 3;
    return options;
  };
  check_every_number_of_ranks(target, {}, {3});
}

TEST_CASE("a rule that needs whole parameters trains the same bits on several ranks") {
  for (const bool bf16_state : {false, true})
    check_every_number_of_ranks(
        [&](RankTraining& training) {
          training.optimizer = std::make_unique<nn::Lamb>(
              std::vector<nn::Lamb::Group>{{training.model.parameters(),
                                            {.learning_rate = 0.01, .weight_decay = 0.1},
                                            bf16_state}});
          return small_batches();
        },
        {}, {2, 3, 7});
}

TEST_CASE("units of several rows and of none are the same on several ranks") {
  for (const bool mean : {false, true}) {
    const auto of_users = [&](RankTraining&) {
      EngineOptions options = small_batches();
      options.logical_batch = 12;
      options.rows_of_unit = rows_of_user;
      options.mean_of_rows = mean;
      return options;
    };
    check_every_number_of_ranks(of_users, {}, {2, 7});
  }
}

TEST_CASE("more ranks than units, empty batches and more ranks than elements are no exception") {
  check_every_number_of_ranks(
      [](RankTraining&) {
        EngineOptions options = small_batches();
        options.logical_batch = 0.7;
        return options;
      },
      {}, {5, 12});
}

TEST_CASE("a rank without memory halves its physical batches, and changes no bit") {
  std::atomic<int> thrown = 0;
  const auto starved = [&](int rank, std::size_t rows) {
    if (rank != 1 || rows <= 4) return;
    ++thrown;
    throw std::bad_alloc();
  };
  const auto one_row = [](RankTraining&) { return small_batches(); };
  const bool same = outcome(3, one_row, {}, starved).weights == outcome(0, one_row).weights;
  CHECK(same);
  CHECK(thrown.exchange(0) > 0);
  // Units of several rows are rounded as their physical batch requires: here the run goes on.
  const auto of_users = [](RankTraining&) {
    EngineOptions options = small_batches();
    options.logical_batch = 30;
    options.rows_of_unit = rows_of_user;
    return options;
  };
  CHECK(outcome(3, of_users, {}, starved).ledger == outcome(3, of_users).ledger);
  CHECK(thrown > 0);
}

// Makes steps on `ranks` ranks (0: without) from the checkpoint `file`, if there is one, and saves
// another. Returns the weights.
std::vector<double> go_on(Sampling sampling, int ranks, const std::string& ledger_file,
                          const std::string& file, std::int64_t steps_to_make) {
  const bool resumed = std::filesystem::exists(file);
  const auto body = [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
    EngineOptions options = small_batches(sampling);
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
      engine.step(loss_of(training.data, training.model));
      average.update();
    }
    save_checkpoint(file, training.model, *training.optimizer, engine, ledger, &average);
  };
  return train_on_ranks(std::max(1, ranks), body)[0]->weights();
}

void check_checkpoints(Sampling sampling, std::initializer_list<int> numbers) {
  const Place place, other;
  const std::string ledger = place.path(), file = ledger + ".state",
                    other_file = other.path() + ".state";
  go_on(sampling, 0, ledger, file, 4);
  go_on(sampling, 3, other.path(), other_file, 4);
  const std::string alone = text_of(file), ledger_text = text_of(ledger);
  CHECK((text_of(other_file) == alone));
  const auto resumed = [&](int ranks) {
    std::ofstream(ledger) << ledger_text;
    std::ofstream(file) << alone;
    std::vector<double> weights = go_on(sampling, ranks, ledger, file, 3);
    return std::pair(std::move(weights), text_of(file));
  };
  const auto by_one = resumed(0);
  for (const int ranks : numbers) {
    CAPTURE(ranks);
    const bool same = resumed(ranks) == by_one;
    CHECK(same);
  }
}

TEST_CASE("a checkpoint is the same file for every number of ranks, and any number resumes it") {
  check_checkpoints(Sampling::poisson, {1, 2, 4, 7});
  check_checkpoints(Sampling::planned, {1, 2, 3});  // correlated noise, with a history
  check_checkpoints(Sampling::partition, {2});      // in the middle of an epoch
}

TEST_CASE(
    "leaving one unit out moves the sum of ranks with other data by its sensitivity at most") {
  check_left_out_units(false);
}

TEST_CASE("a complete training on several ranks is the one on one rank, with its statement") {
  const auto trained = [](int ranks) {
    const Place place;
    std::vector<std::string> statements(static_cast<std::size_t>(ranks));
    std::atomic<int> calls = 0;
    const auto body = [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
      EngineOptions options = small_batches();
      options.ranks = own;
      for (const std::int64_t steps_now : {4, 9}) {  // the second call resumes
        options.steps = 9;
        statements[static_cast<std::size_t>(own->rank())] = to_json(
            train(training.model, *training.optimizer, training.data, place.path(),
                  {.engine = options, .save = place.path() + ".state"}, nn::CrossEntropyLoss{},
                  [&](const StepReport& report, const Engine& engine) {
                    ++calls;
                    return engine.epsilon() > 0 && report.step < steps_now;
                  }));
      }
    };
    const auto all = train_on_ranks(ranks, body);
    for (const std::string& statement : statements) CHECK(statement == statements[0]);
    CHECK(calls == 9);
    return std::pair(all.back()->weights(), statements[0]);
  };
  const bool same = trained(3) == trained(1);
  CHECK(same);
}

}  // namespace
}  // namespace sotto
