// Noise, division and the optimizer's update in one pass over the parameters: each block of a
// gradient is updated while it is in the cache, and on a GPU the sums never leave it.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/noise/noise_grid.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// Draws noise in spacings for the elements first, first + 1, ... of all parameters together, which
// are of one parameter: as many as there is room for. Returns where they are, in `room` or
// elsewhere.
using WholeNoise =
    std::function<std::span<const std::int64_t>(std::int64_t first, std::span<std::int64_t> room)>;

// The source of noise on a GPU: the keystream that the CPU would draw from.
struct GpuNoise {
  const RoundedGaussian& gaussian;
  SecretRandom& random;
  // The number of draws in memory at once: 32 MiB, which the caches of large GPUs hold. A multiple
  // of RoundedGaussian::group_values.
  std::int64_t max_draws = std::int64_t{1} << 22;
};

class NoisyUpdate {
 public:
  // `released` has the sums' shapes and devices and may be the sums; where it is f32 the sums are
  // f32 or f64. The sums outlive it.
  NoisyUpdate(const Gradients& sums, Gradients released, double divisor)
      : sums_(sums), released_(std::move(released)), divisor_(divisor) {}
  NoisyUpdate(const NoisyUpdate&) = delete;
  NoisyUpdate& operator=(const NoisyUpdate&) = delete;

  // Makes the optimizer's step with it. Checks and throws as Optimizer::Step, before anything
  // moves.
  void make_step(nn::Optimizer& optimizer, double noise_variance) {
    step_.emplace(optimizer, released_, noise_variance);
  }

  // Every element becomes the nearest multiple of the spacing plus so many spacings, divided. Noise
  // is drawn for every element once, in order. An infinite sum counts as the largest finite one.
  // Throws std::invalid_argument for a sum that is not a number.
  void on_cpu(const NoiseGrid& grid, const WholeNoise& draw);
  // The same for sums on one GPU, to the bit, in three launches for each max_draws elements,
  // whatever the number of parameters. The host waits once, for whether all numbers were finite.
  // The key reaches the device as an argument of the kernels alone; draws are in its memory
  // meanwhile. Throws std::invalid_argument, when all is done, for a sum that is not a number, and
  // for a step with a gradient that noise made infinite; elements for which that holds have not
  // moved, others have.
  void on_gpu(const NoiseGrid& grid, const GpuNoise& noise);
  // Whether all sums are on one GPU.
  bool on_one_gpu() const;

  // For noise without a grid: what is released is written by the mechanism, gradient by gradient,
  // each followed by finished().
  const Gradients& sums() const { return sums_; }
  const Gradients& released() const { return released_; }
  double divisor() const { return divisor_; }
  // The k-th gradient is released: makes its update.
  void finished(std::size_t k);

 private:
  void finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                std::int64_t end, bool finite);
  std::optional<UpdateArray> update_in_place(std::size_t k, const Tensor& flat);

  const Gradients& sums_;
  Gradients released_;
  double divisor_;
  std::optional<nn::Optimizer::Step> step_;
};

}  // namespace sotto
