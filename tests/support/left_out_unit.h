// The release of ranks with hostile data, with and without one unit.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/ops.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/thread_ranks.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"

namespace sotto {

// Numbers that try to break clipping: huge, not finite, tiny, and ones that cancel. Each rank has
// others.
inline std::vector<float> hostile_numbers(int rank) {
  std::vector<float> x(population, 0.3F - 0.2F * static_cast<float>(rank));
  const float hostile[] = {1e30F,    -1e30F, std::numeric_limits<float>::infinity(),
                           -0.9375F, 1e-30F, std::numeric_limits<float>::quiet_NaN(),
                           0x1p-24F, 5};
  for (std::size_t k = 0; k < x.size(); k += 3) x[k] = hostile[k % std::size(hostile)];
  return x;
}

// The sum of clipped gradients that three ranks release, on CPUs or GPUs, without unit `left_out`.
// Equal keys give equal noise.
inline std::vector<double> released_without(std::int64_t left_out, bool on_gpus,
                                            double* sensitivity = nullptr) {
  std::vector<double> sum;
  on_thread_ranks(3, [&](Ranks& own) {
    const std::vector<float> x = hostile_numbers(own.rank());
    const std::shared_ptr<Ranks> ranks(std::shared_ptr<void>(), &own);
    nn::Linear model(2, 3);
    for (Parameter* parameter : model.parameters())
      parameter->value = zeros(parameter->value.shape());
    const Device device = on_gpus ? gpu_of_rank(own) : cpu;
    model.to(device);
    nn::Sgd optimizer(model, {.learning_rate = 1});
    EngineOptions options{.noise_multiplier = 1e-3,
                          .sampling = Sampling::full_batch,
                          .logical_batch = population,
                          .memory = {.physical_batch = 16}};
    options.ranks = ranks;
    options.rows_of_unit = [=](std::int64_t unit) {
      return unit == left_out ? std::vector<std::int64_t>() : std::vector{unit};
    };
    const Ledger ledger = Ledger::on_rank_0(ranks, [] { return Ledger(); });
    Engine engine(model, optimizer, population, ledger, options);
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      std::vector<float> of_rows;
      for (const std::int64_t row : rows) {
        of_rows.push_back(x[static_cast<std::size_t>(row)]);
        of_rows.push_back(0.5F);
      }
      const Tensor inputs = Tensor::from(of_rows, {std::ssize(rows), 2});
      return sum_per_sample(model(tape.input(inputs.to(device))));
    });
    if (own.rank() != 0) return;
    for (const Parameter* parameter : model.parameters())
      for (const float value : parameter->value.to_vector<float>())
        sum.push_back(-static_cast<double>(value) * population);
    if (sensitivity != nullptr) *sensitivity = engine.clipper().sensitivity();
  });
  return sum;
}

// Leaves out the units with hostile numbers and those at ends of blocks, one after the other. The
// program has to give all generators one key.
inline void check_left_out_units(bool on_gpus) {
  double sensitivity = 0, furthest = 0;
  const std::vector<double> all = released_without(-1, on_gpus, &sensitivity);
  for (std::int64_t unit = 0; unit < population; ++unit) {
    if (unit % 3 != 0 && unit % 16 != 15) continue;  // the hostile ones, and ends of blocks
    const std::vector<double> without = released_without(unit, on_gpus);
    double square = 0;
    for (std::size_t k = 0; k < all.size(); ++k)
      square += (all[k] - without[k]) * (all[k] - without[k]);
    furthest = std::max(furthest, std::sqrt(square));
  }
  constexpr double last_digits = 1e-4;  // of f32 weights
  CHECK(furthest <= sensitivity + last_digits);
  CHECK(furthest > 0.99 * sensitivity);
}

}  // namespace sotto
