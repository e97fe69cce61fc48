// A release whose sums are on a GPU: the noise is drawn there, from the same keystream as the CPU
// would draw it from, and the sums never leave.
#pragma once

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/noise/noise_grid.h"
#include "nn/optim/optimizer.h"

namespace sotto {

// Whether all sums are on one GPU.
bool on_one_gpu(const Gradients& sums);

struct DeviceRelease {
  NoiseGrid grid;
  double divisor;
  const RoundedGaussian& gaussian;
  SecretRandom& random;
  nn::Optimizer::Step* step = nullptr;  // to be made with the released gradient, if there is one
  // Draws that are in memory at once: 32 MiB, which the caches of large GPUs hold. A multiple of
  // RoundedGaussian::group_values.
  std::int64_t most_draws = std::int64_t{1} << 22;
};

// Writes to `released` what add_on_grid() writes with draws of the generator, to the bit, and makes
// the optimizer's step: three launches for each `most_draws` elements, whatever the number of
// parameters. The host waits once, for whether all numbers were finite. The key reaches the device
// as an argument of the kernels alone; draws are in its memory meanwhile. Throws
// std::invalid_argument, when all is done, for a sum that is not a number, and for a step with a
// gradient that noise made infinite; elements for which that holds have not moved, others have.
void release_on_device(const Gradients& sums, const Gradients& released, const DeviceRelease& how);

}  // namespace sotto
