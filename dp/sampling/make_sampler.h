// Samplers by name and batch size, as people ask for them.
#pragma once

#include <memory>

#include "dp/sampling/sampler.h"

namespace sotto {

struct SamplerOptions {
  Sampling sampling = Sampling::poisson;
  // The mean number of units in a batch. Exactly so many for a fixed size and a plan, at most so
  // many for a partition; balls and bins have ceil(population / expected_batch) batches in a pass.
  // For the full batch the population, or 0.
  double expected_batch = 0;
  // Truncated Poisson alone: the most units that stay in a batch.
  std::int64_t largest = 0;
  // Cyclic Poisson alone: the groups that take turns.
  std::int64_t groups = 0;
  // A plan alone: its draws.
  std::int64_t steps = 0;
};

// Throws std::invalid_argument for what the sampler refuses, for a batch that is not a whole number
// where it must be, and for an option that its sampling does not have.
std::unique_ptr<Sampler> make_sampler(std::int64_t population, const SamplerOptions& options,
                                      SecretRandom random = SecretRandom());

}  // namespace sotto
