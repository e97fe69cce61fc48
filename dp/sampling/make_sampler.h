// Makes samplers from a sampling, a batch size and the options of that sampling.
#pragma once

#include <memory>

#include "dp/sampling/sampler.h"

namespace sotto {
class SecretRandom;
}  // namespace sotto

namespace sotto {

// The sampling, and the numbers that it needs.
struct SamplerOptions {
  Sampling sampling = Sampling::poisson;  // how batches are drawn
  // The mean number of units in a batch. For fixed_size and planned it is exact; for partition it
  // is the maximum; balls_and_bins has ceil(population / expected_batch) batches in an epoch; for
  // full_batch it is the population, or 0.
  double expected_batch = 0;
  // Truncated Poisson only: the maximum number of units in a batch.
  std::int64_t max_batch_size = 0;
  // Cyclic Poisson only: the number of groups that take turns.
  std::int64_t groups = 0;
  // planned only: the number of draws.
  std::int64_t steps = 0;
};

// Throws std::invalid_argument for arguments that the sampler refuses, for a batch that must be an
// integer and is not, and for an option that the sampling does not have.
std::unique_ptr<Sampler> make_sampler(std::int64_t population, const SamplerOptions& options);
// With the caller's generator, such as SecretRandom::insecure_seeded() in tests.
std::unique_ptr<Sampler> make_sampler(std::int64_t population, const SamplerOptions& options,
                                      SecretRandom random);

}  // namespace sotto
