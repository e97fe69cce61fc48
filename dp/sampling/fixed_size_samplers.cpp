#include "dp/sampling/fixed_size_samplers.h"

#include <cmath>
#include <numeric>

#include "core/error.h"

namespace sotto {

namespace {

Event fixed_size_event(std::int64_t population, std::int64_t size) {
  check(size >= 1 && size <= population && population <= std::int64_t{1} << 53,
        "FixedSizeSampler: {} of {} units", size, population);
  const auto all = static_cast<double>(population), some = static_cast<double>(size);
  double rate = some / all;
  if (std::fma(rate, all, -some) < 0) rate = std::nextafter(rate, 1.0);
  return {.sampling = Sampling::fixed_size, .sampling_rate = rate};
}

Event planned_event(std::int64_t population, std::int64_t batch, std::int64_t steps) {
  check(batch >= 1 && batch <= population, "PlannedSampler: batches of {} of {} units", batch,
        population);
  check(steps >= 1, "PlannedSampler: a plan of {} steps", steps);
  return {.sampling = Sampling::planned, .batches = steps};
}

}  // namespace

FixedSizeSampler::FixedSizeSampler(std::int64_t population, std::int64_t size, SecretRandom random)
    : Sampler(population, fixed_size_event(population, size)),
      size_(size),
      random_(std::move(random)) {}

PlannedSampler::PlannedSampler(std::int64_t population, std::int64_t batch, std::int64_t steps)
    : Sampler(population, planned_event(population, batch, steps)), batch_(batch) {}

std::vector<std::int64_t> PlannedSampler::sample(std::int64_t index_in_epoch) {
  std::vector<std::int64_t> units(static_cast<std::size_t>(batch_));
  std::iota(units.begin(), units.end(), index_in_epoch % min_separation() * batch_);
  return units;
}

}  // namespace sotto
