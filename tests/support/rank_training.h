// A small training on ranks that are threads, whose randomness is the same in every run: the
// program's getrandom() gives equal keys.
#pragma once

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/ranks/thread_ranks.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/engine_training.h"
#include "tests/support/ledger_files.h"

namespace sotto {

// One rank's model, data and optimizer.
struct RankTraining {
  Dataset data = (nn::manual_seed(1), make_digits(population, 1));  // before the model is made
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 12), nn::Tanh(), nn::Linear(12, 10)};
  std::unique_ptr<nn::Optimizer> optimizer =
      std::make_unique<nn::Adam>(model, nn::AdamRule<false>{.learning_rate = 0.01});

  std::vector<double> weights() {
    std::vector<double> all;
    for (const Parameter* parameter : model.parameters()) {
      const auto more = to_dtype(parameter->value, Dtype::f64).to_vector<double>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
};

// Options of a private training on these ranks.
inline EngineOptions noisy(const std::shared_ptr<Ranks>& ranks) {
  EngineOptions options = options_of(Sampling::poisson);
  options.noise_multiplier = 1;
  options.memory.physical_batch = 16;
  options.ranks = ranks;
  return options;
}

// The body of a rank's program, with the model that it trains and its end of the run.
using RankBody = std::function<void(RankTraining& training, const std::shared_ptr<Ranks>& ranks)>;

// Runs the body on ranks with equal models, and returns these.
inline std::vector<std::unique_ptr<RankTraining>> train_on_ranks(
    int size, const RankBody& body, const ThreadRanksOptions& options = {}) {
  std::vector<std::unique_ptr<RankTraining>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(std::make_unique<RankTraining>());
  on_thread_ranks(
      size,
      [&](Ranks& ranks) {
        const std::shared_ptr<Ranks> shared(std::shared_ptr<void>(), &ranks);
        body(*all[static_cast<std::size_t>(ranks.rank())], shared);
      },
      options);
  return all;
}

inline std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace sotto
