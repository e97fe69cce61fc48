// A small training with every sampling, for the tests of engines.
#pragma once

#include "autograd/ops.h"
#include "dp/engine/engine.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"

namespace sotto {

inline constexpr std::int64_t population = 120;
inline constexpr std::int64_t steps = 9;

// The data and the model must outlive the loss.
inline Engine::Loss loss_of(const Dataset& data, nn::Module& model) {
  return [&](Tape& tape, std::span<const std::int64_t> rows) {
    const Dataset batch = data.batch(rows);
    return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
  };
}

struct Training {
  Dataset data = (nn::manual_seed(1), make_digits(population, 1));  // before the model is made
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 0.1, .momentum = 0.9}};

  Engine::Loss loss() { return loss_of(data, model); }
  Engine engine(const Ledger& ledger, const EngineOptions& options) {
    return Engine(model, optimizer, population, ledger, options);
  }
  void step(Engine& engine, std::int64_t times = 1) {
    for (std::int64_t k = 0; k < times; ++k) engine.step(loss());
  }
  std::vector<float> weights() { return model.parameters()[0]->value.to_vector<float>(); }
};

// The settings of each sampling, with three or four batches per epoch.
inline EngineOptions options_of(Sampling sampling) {
  EngineOptions options{.steps = steps, .sampling = sampling, .logical_batch = 30};
  if (sampling == Sampling::full_batch) options.logical_batch = population;
  if (sampling == Sampling::truncated_poisson) options.max_batch_size = 90;
  if (sampling == Sampling::balls_and_bins) options.accountant = AccountantKind::rdp;
  if (sampling == Sampling::cyclic_poisson) {
    options.groups_in_cycle = 4;
    options.logical_batch = 20;
  }
  if (sampling == Sampling::planned)
    options.noise_strategy =
        optimize_banded_toeplitz({.steps = steps, .participation = {.min_separation = 4}}, 3);
  return options;
}

inline LedgerHeader header_for(Sampling sampling) {
  const bool exchanged = sampling == Sampling::fixed_size || sampling == Sampling::partition;
  return {.relation = exchanged ? NeighboringRelation::replace_one
                                : NeighboringRelation::add_or_remove_one};
}

inline constexpr Sampling all_samplings[] = {
    Sampling::full_batch, Sampling::poisson,        Sampling::truncated_poisson,
    Sampling::fixed_size, Sampling::partition,      Sampling::balls_and_bins,
    Sampling::planned,    Sampling::cyclic_poisson,
};

}  // namespace sotto
