// Units whose data one rank has: who owns them, who reads them, and the bits of the training.
#include <atomic>
#include <cstring>

#include <sys/random.h>

#include "tests/support/catch.h"
#include "tests/support/rank_training.h"
#include "tests/support/throws.h"

// The key of every generator in this program.
extern "C" ssize_t getrandom(void* buffer, size_t size, unsigned /*flags*/) {
  std::memset(buffer, 0x5A, size);
  return static_cast<ssize_t>(size);
}

namespace sotto {
namespace {

using Owner = std::function<std::int64_t(std::int64_t unit)>;
using Rows = std::vector<std::int64_t>;

// Every third unit has two rows, every fifth none.
Rows rows_of(std::int64_t unit) {
  if (unit % 5 == 0) return {};
  return unit % 3 == 0 ? Rows{2 * unit, 2 * unit + 1} : Rows{2 * unit};
}

// Trains on `ranks` ranks, of which each has the rows of its own units alone: it fails if it is
// asked for others. Returns the weights; `computed` gets the number of rows by rank.
std::vector<double> trained(int ranks, const Owner& owner, bool several_rows,
                            std::vector<std::int64_t>* computed = nullptr) {
  std::vector<std::int64_t> rows_computed(static_cast<std::size_t>(ranks));
  const auto all = train_on_ranks(ranks, [&](RankTraining& training, const auto& own) {
    const auto check_own = [&](std::int64_t unit) {
      check(owner(unit) % ranks == own->rank(), "rank {} has no rows of unit {}", own->rank(),
            unit);
    };
    EngineOptions options = options_of(Sampling::poisson);
    options.noise_multiplier = 1;
    options.memory.physical_batch = 16;
    options.owner_of_unit = owner;  // the ranks are the ledger's
    if (several_rows)
      options.rows_of_unit = [&](std::int64_t unit) {
        check_own(unit);
        return rows_of(unit);
      };
    const std::int64_t units = several_rows ? population / 2 : population;
    const Ledger ledger = Ledger::on_rank_0(own, [] { return Ledger(); });
    Engine engine(training.model, *training.optimizer, units, ledger, options);
    const Engine::Loss loss = loss_of(training.data, training.model);
    while (engine.can_step())
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        for (const std::int64_t row : rows) check_own(several_rows ? row / 2 : row);
        rows_computed[static_cast<std::size_t>(own->rank())] += std::ssize(rows);
        return loss(tape, rows);
      });
  });
  if (computed != nullptr) *computed = rows_computed;
  for (const auto& training : all) {
    const bool same_on_every_rank = training->weights() == all[0]->weights();
    CHECK(same_on_every_rank);
  }
  return all[0]->weights();
}

TEST_CASE("a unit's rows are read by its owner alone, and the bits are those of one rank") {
  const Owner strided = [](std::int64_t unit) { return unit % 5; };
  const Owner halves = [](std::int64_t unit) { return unit < 50 ? 0 : 1; };
  for (const Owner& owner : {strided, halves}) {
    for (const bool several_rows : {false, true}) {
      const std::vector<double> alone = trained(1, owner, several_rows);
      for (const int ranks : {2, 3, 5}) {
        CAPTURE(ranks, several_rows);
        const bool same = trained(ranks, owner, several_rows) == alone;
        CHECK(same);
      }
    }
  }
}

TEST_CASE("a rank that owns no unit computes nothing, and more ranks than units are no exception") {
  const Owner of_two = [](std::int64_t unit) { return unit % 2 == 0 ? 0 : 3; };
  std::vector<std::int64_t> computed;
  const bool same = trained(4, of_two, false, &computed) == trained(1, of_two, false);
  CHECK(same);
  CHECK(computed[0] > 0);
  CHECK(computed[1] == 0);
  CHECK(computed[2] == 0);
  CHECK(computed[3] > 0);
}

// The error of each rank when an engine is made with these owners.
std::vector<std::string> errors_of_owners(const std::function<Owner(int rank)>& owner_on) {
  std::vector<std::string> texts(3);
  train_on_ranks(3, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
    EngineOptions options = options_of(Sampling::poisson);
    options.noise_multiplier = 1;
    options.ranks = ranks;
    options.owner_of_unit = owner_on(ranks->rank());
    const Ledger ledger = Ledger::on_rank_0(ranks, [] { return Ledger(); });
    try {
      Engine(training.model, *training.optimizer, population, ledger, options);
    } catch (const std::invalid_argument& error) {
      texts[static_cast<std::size_t>(ranks->rank())] = error.what();
    }
  });
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
  return texts;
}

TEST_CASE("a unit of two owners, or of none, is an error that names it on every rank") {
  const auto with = [](int changed_rank, std::int64_t changed_unit, std::int64_t owner) {
    return errors_of_owners([=](int rank) {
      return [=](std::int64_t unit) {
        return rank == changed_rank && unit == changed_unit ? owner : unit % 3;
      };
    })[0];
  };
  CHECK(with(-1, 0, 0).empty());
  CHECK(with(2, 37, 2).find("unit 37 is owned by ranks 1 and 2") != std::string::npos);
  CHECK(with(1, 119, 0).empty());  // rank 2 has it, whatever rank 1 thinks
  CHECK(with(2, 119, 0).find("unit 119 is owned by no rank") != std::string::npos);
  CHECK(with(0, 37, 2).find("unit 37 is owned by rank 1, and by rank 2 for rank 0") !=
        std::string::npos);
  CHECK(with(0, 8, -1).find("the owner of unit 8 is -1") != std::string::npos);
  CHECK(errors_of_owners([](int rank) {
          return rank == 1 ? Owner() : [](std::int64_t unit) { return unit % 3; };
        })[0]
            .find("owner_of_unit is unset on rank 1 and set on rank 0") != std::string::npos);
}

}  // namespace
}  // namespace sotto
