#include "dp/sampling/epoch_samplers.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace sotto {

namespace {

Event partition_event(std::int64_t population, std::int64_t batch) {
  check(batch >= 1 && batch <= population, "PartitionSampler: batches of {} of {} units", batch,
        population);
  return {.sampling = Sampling::partition, .batches = (population - 1) / batch + 1};
}

Event balls_event(std::int64_t population, std::int64_t batches) {
  check(batches >= 1 && batches <= population, "BallsAndBinsSampler: {} batches of {} units",
        batches, population);
  return {.sampling = Sampling::balls_and_bins, .batches = batches};
}

// Where each batch starts when the units are sorted by batch, and the end; units with -1 are left
// out.
std::vector<std::int64_t> starts(const std::vector<std::int64_t>& batch_of, std::int64_t batches) {
  std::vector<std::int64_t> start(static_cast<std::size_t>(batches) + 1);
  for (const std::int64_t batch : batch_of) {
    if (batch >= 0) ++start[static_cast<std::size_t>(batch) + 1];
  }
  std::partial_sum(start.begin(), start.end(), start.begin());
  return start;
}

// The units sorted by batch.
std::vector<std::int64_t> sorted(const std::vector<std::int64_t>& batch_of,
                                 std::vector<std::int64_t> start) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(start.back()));
  std::int64_t unit = 0;
  for (const std::int64_t batch : batch_of) {
    if (batch >= 0)
      order[static_cast<std::size_t>(start[static_cast<std::size_t>(batch)]++)] = unit;
    ++unit;
  }
  return order;
}

}  // namespace

EpochSampler::EpochSampler(std::int64_t population, const Event& first, SecretRandom random)
    : Sampler(population, first), random_(std::move(random)) {}

double EpochSampler::expected_batch_size() const {
  return static_cast<double>(population()) / static_cast<double>(event().batches);
}

std::vector<std::int64_t> EpochSampler::sample(std::int64_t index_in_epoch) {
  if (index_in_epoch == 0) {
    const std::vector<std::int64_t> batch_of = assign(random_);
    start_ = starts(batch_of, event().batches);
    order_ = sorted(batch_of, start_);
  }
  const auto at = start_.begin() + index_in_epoch;
  return {order_.begin() + at[0], order_.begin() + at[1]};
}

std::vector<std::int64_t> EpochSampler::rest(std::int64_t index_in_epoch) const {
  if (index_in_epoch == 0 || index_in_epoch == event().batches) return {};
  std::vector<std::int64_t> batch_of(static_cast<std::size_t>(population()), -1);
  for (std::int64_t batch = index_in_epoch; batch < event().batches; ++batch) {
    const auto at = start_.begin() + batch;
    for (std::int64_t i = at[0]; i < at[1]; ++i)
      batch_of[static_cast<std::size_t>(order_[static_cast<std::size_t>(i)])] = batch;
  }
  return batch_of;
}

void EpochSampler::load_rest(std::int64_t index_in_epoch, const std::vector<std::int64_t>& rest) {
  const std::int64_t batches = event().batches;
  if (index_in_epoch == 0 || index_in_epoch == batches)
    return Sampler::load_rest(index_in_epoch, rest);
  check(rest.size() == static_cast<std::size_t>(population()),
        "Sampler: {}: a state with the batches of {} units of {}", name(sampling()), rest.size(),
        population());
  for (const std::int64_t batch : rest)
    check(batch == -1 || (batch >= index_in_epoch && batch < batches),
          "Sampler: {}: a state with a unit in batch {} after {} of {}", name(sampling()), batch,
          index_in_epoch, batches);
  std::vector<std::int64_t> start = starts(rest, batches);
  for (std::int64_t batch = index_in_epoch; batch < batches; ++batch) {
    const auto at = start.begin() + batch;
    check(size(batch) == -1 || at[1] - at[0] == size(batch),
          "Sampler: {}: a state with {} units in batch {}, not {}", name(sampling()), at[1] - at[0],
          batch, size(batch));
  }
  order_ = sorted(rest, start);
  start_ = std::move(start);
}

PartitionSampler::PartitionSampler(std::int64_t population, std::int64_t batch, SecretRandom random)
    : EpochSampler(population, partition_event(population, batch), std::move(random)) {}

std::int64_t PartitionSampler::size(std::int64_t batch) const {
  return population() / event().batches + (batch < population() % event().batches ? 1 : 0);
}

// Shuffles a list that has each batch's number once for each of its units (Fisher and Yates 1938,
// Durstenfeld 1964).
std::vector<std::int64_t> PartitionSampler::assign(SecretRandom& random) const {
  std::vector<std::int64_t> batch_of;
  batch_of.reserve(static_cast<std::size_t>(population()));
  for (std::int64_t batch = 0; batch < event().batches; ++batch)
    batch_of.insert(batch_of.end(), static_cast<std::size_t>(size(batch)), batch);
  for (std::int64_t left = population(); left > 1; --left)
    std::swap(batch_of[static_cast<std::size_t>(left - 1)],
              batch_of[static_cast<std::size_t>(random.below(left))]);
  return batch_of;
}

BallsAndBinsSampler::BallsAndBinsSampler(std::int64_t population, std::int64_t batches,
                                         SecretRandom random)
    : EpochSampler(population, balls_event(population, batches), std::move(random)) {}

std::vector<std::int64_t> BallsAndBinsSampler::assign(SecretRandom& random) const {
  std::vector<std::int64_t> batch_of(static_cast<std::size_t>(population()));
  for (std::int64_t& batch : batch_of) batch = random.below(event().batches);
  return batch_of;
}

}  // namespace sotto
