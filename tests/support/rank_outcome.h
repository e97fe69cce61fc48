// The outcome of a private training, to be compared between numbers of ranks.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/rank_training.h"

namespace sotto {

struct Outcome {
  std::vector<double> weights;
  std::string ledger;
  double epsilon = 0;
  std::vector<double> bounds;
};

// Units of up to five rows, some of which have none.
inline constexpr std::int64_t users = 40;
inline std::vector<std::int64_t> rows_of_user(std::int64_t user) {
  std::vector<std::int64_t> rows;
  for (std::int64_t k = 0; k < user * 7 % 4; ++k) rows.push_back(3 * user + k);
  return rows;
}

using OptionsFor = std::function<EngineOptions(RankTraining&)>;
// Called in each loss, with the rank and the number of rows.
using InLoss = std::function<void(int rank, std::size_t rows)>;

// The parts of a training that a test may replace: before, in and after its steps.
struct RankProgram {
  std::function<void(RankTraining&, Ranks&)> prepare = [](RankTraining&, Ranks&) {};
  std::function<Engine::Loss(RankTraining&)> loss = [](RankTraining& training) {
    return loss_of(training.data, training.model);
  };
  std::function<void(RankTraining&)> end = [](RankTraining&) {};
};

// The outcome on `ranks` ranks; 0: by an engine without ranks. Checks that all ranks have the same
// weights.
inline Outcome outcome_of(const RankProgram& program, int ranks, const OptionsFor& options_for,
                          LedgerHeader header = {}, const InLoss& in_loss = {}) {
  const Place place;
  Outcome outcome;
  const auto body = [&](RankTraining& training, const std::shared_ptr<Ranks>& own) {
    program.prepare(training, *own);
    EngineOptions options = options_for(training);
    const auto create = [&] { return Ledger::create(place.path(), header); };
    if (ranks > 0) options.ranks = own;
    Ledger ledger = ranks > 0 ? Ledger::on_rank_0(own, create) : create();
    const std::int64_t units = options.rows_of_unit ? users : population;
    Engine engine(training.model, *training.optimizer, units, ledger, options);
    const Engine::Loss loss = program.loss(training);
    while (engine.can_step())
      engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
        if (in_loss) in_loss(own->rank(), rows.size());
        return loss(tape, rows);
      });
    program.end(training);
    if (own->rank() != 0) return;
    ledger.settle();
    outcome.epsilon = engine.epsilon();
    outcome.bounds = engine.clipper().bounds();
  };
  const auto all = train_on_ranks(std::max(1, ranks), body);
  outcome.ledger = text_of(place.path());
  outcome.weights = all[0]->weights();
  for (const auto& training : all) {
    const bool same_on_every_rank = training->weights() == outcome.weights;
    CHECK(same_on_every_rank);
  }
  return outcome;
}

inline void check_same(const Outcome& one, const Outcome& other) {
  const bool same_weights = one.weights == other.weights;
  CHECK(same_weights);
  CHECK(one.ledger == other.ledger);
  CHECK(one.epsilon == other.epsilon);
  CHECK(one.bounds == other.bounds);
}

// Checks that these numbers of ranks have the outcome of an engine without ranks.
inline void check_numbers_of_ranks(const RankProgram& program, const OptionsFor& options,
                                   const LedgerHeader& header, const std::vector<int>& numbers) {
  const Outcome alone = outcome_of(program, 0, options, header);
  for (const int ranks : numbers) {
    CAPTURE(ranks);
    check_same(outcome_of(program, ranks, options, header), alone);
  }
}

}  // namespace sotto
