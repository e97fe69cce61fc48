#include "dp/sampling/make_sampler.h"

#include <cmath>

#include "core/error.h"
#include "core/random/secret_random.h"
#include "dp/sampling/epoch_samplers.h"
#include "dp/sampling/fixed_size_samplers.h"
#include "dp/sampling/poisson_samplers.h"

namespace sotto {

namespace {

// Refuses an option of another sampling.
void check_absent(const SamplerOptions& options, Sampling owner, std::int64_t number,
                  const char* what) {
  check(options.sampling == owner || number == 0, "make_sampler: {} {} of {}", number, what,
        name(options.sampling));
}

void check_options(std::int64_t population, const SamplerOptions& options) {
  check_absent(options, Sampling::truncated_poisson, options.max_batch_size,
               "units per batch at most");
  check_absent(options, Sampling::cyclic_poisson, options.groups, "groups");
  check_absent(options, Sampling::planned, options.steps, "steps");
  const auto all = static_cast<double>(population);
  const double batch = options.expected_batch;
  if (options.sampling == Sampling::full_batch) {
    check(batch == 0 || batch == all, "make_sampler: full_batch with batches of {} of {} units",
          batch, population);
  } else {
    check(batch > 0 && batch <= all, "make_sampler: {} with batches of {} of {} units",
          name(options.sampling), batch, population);
  }
}

// The batch size as an integer, for samplings whose size is not a mean.
std::int64_t whole_batch(const SamplerOptions& options) {
  const double batch = options.expected_batch;
  check(batch == std::floor(batch), "make_sampler: {} with batches of {} units",
        name(options.sampling), batch);
  return static_cast<std::int64_t>(batch);
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(std::int64_t population, const SamplerOptions& options) {
  return make_sampler(population, options, SecretRandom());
}

std::unique_ptr<Sampler> make_sampler(std::int64_t population, const SamplerOptions& options,
                                      SecretRandom random) {
  check_options(population, options);
  const auto all = static_cast<double>(population);
  const double rate = options.expected_batch / all;
  switch (options.sampling) {
    case Sampling::full_batch: return std::make_unique<FullBatchSampler>(population);
    case Sampling::poisson:
      return std::make_unique<PoissonSampler>(population, rate, std::move(random));
    case Sampling::truncated_poisson:
      return std::make_unique<TruncatedPoissonSampler>(population, rate, options.max_batch_size,
                                                       std::move(random));
    case Sampling::fixed_size:
      return std::make_unique<FixedSizeSampler>(population, whole_batch(options),
                                                std::move(random));
    case Sampling::partition:
      return std::make_unique<PartitionSampler>(population, whole_batch(options),
                                                std::move(random));
    case Sampling::balls_and_bins:
      return std::make_unique<BallsAndBinsSampler>(
          population, static_cast<std::int64_t>(std::ceil(all / options.expected_batch)),
          std::move(random));
    case Sampling::cyclic_poisson:
      return std::make_unique<CyclicPoissonSampler>(
          population, options.groups,
          options.expected_batch * static_cast<double>(options.groups) / all, std::move(random));
    case Sampling::planned:
      return std::make_unique<PlannedSampler>(population, whole_batch(options), options.steps);
  }
  fail("make_sampler: unknown sampling");
}

}  // namespace sotto
