// Release of sums on a GPU: noise is generated there from the keystream that the CPU would use, and
// the sums never leave the device.
#pragma once

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/noise/noise_grid.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// Returns whether all sums are on one GPU.
bool on_one_gpu(const Gradients& sums);

struct DeviceRelease {
  NoiseGrid grid;
  double divisor;
  const RoundedGaussian& gaussian;
  SecretRandom& random;
  nn::Optimizer::Step* step = nullptr;  // the update to make with the released gradient, or null
  // The number of draws in memory at once: 32 MiB, which the caches of large GPUs hold. A multiple
  // of RoundedGaussian::group_values.
  std::int64_t max_draws = std::int64_t{1} << 22;
};

// Writes to `released` the bits that add_on_grid() writes with draws of this generator, and makes
// the optimizer's step, in three launches for each `max_draws` elements, whatever the number of
// parameters. The host synchronizes once, to learn whether all numbers were finite. The key reaches
// the device as a kernel argument only; the draws are in device memory meanwhile. Throws
// std::invalid_argument, after all launches, for a sum that is NaN, and for a step with a gradient
// that noise made infinite: elements with such numbers are not updated, the others are.
void release_on_device(const Gradients& sums, const Gradients& released, const DeviceRelease& how);

}  // namespace sotto
