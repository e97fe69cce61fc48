#include "dp/sampling/sampler.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/io/xxh64.h"
#include "core/random/secret_random.h"

namespace sotto {

namespace {

// From 1 up to 2^53 - 1, which every reader of JSON holds.
std::uint64_t new_epoch_id() { return 1 + (SecretRandom().word() >> 11) % ((1ULL << 53) - 1); }

}  // namespace

UnitDigest& UnitDigest::operator+=(const UnitDigest& other) {
  units += other.units;
  hash += other.hash;
  return *this;
}

UnitDigest digest_of(std::span<const std::int64_t> units) {
  UnitDigest digest{std::ssize(units)};
  for (const std::int64_t unit : units) digest.hash += xxh64(std::as_bytes(std::span(&unit, 1)));
  return digest;
}

Sampler::Sampler(std::int64_t population, const Event& first)
    : population_(population), event_(first) {
  check(population >= 1, "Sampler: a population of {}", population);
  check_event("Sampler", first);
}

void Sampler::seek(std::int64_t index_in_epoch, std::uint64_t number) {
  index_in_epoch_ = index_in_epoch;
  number_ = number;
  event_.paid = index_in_epoch % event_.batches > 0;
}

void Sampler::resume_from(std::uint64_t number) { seek(0, number); }

SampledBatch Sampler::draw() {
  const bool over = index_in_epoch_ == event_.batches;
  check(!over || repeats(), "Sampler: {}: all {} batches of the plan were drawn",
        name(event_.sampling), index_in_epoch_);
  const std::int64_t index_in_epoch = over ? 0 : index_in_epoch_;
  SampledBatch draw;
  draw.units_ = sample(index_in_epoch);
  draw.whole_ = whole_digest();
  draw.event_ = event_;
  draw.min_separation_ = min_separation();
  draw.expected_size_ = expected_batch_size();
  draw.population_ = population_;
  draw.number_ = number_;
  draw.index_in_epoch_ = index_in_epoch;
  if (index_in_epoch == 0) {
    epoch_began_ = number_;
    epoch_id_ = event_.batches > 1 ? new_epoch_id() : 0;
  }
  draw.epoch_began_ = epoch_began_;
  draw.epoch_id_ = epoch_id_;
  draw.secure_ = secure();
  seek(index_in_epoch + 1, number_ + 1);
  return draw;
}

SamplerState Sampler::state() const {
  return {.event = event_,
          .population = population_,
          .expected_batch_size = expected_batch_size(),
          .secure = secure(),
          .index_in_epoch = index_in_epoch_,
          .epoch_began = epoch_began_,
          .epoch_id = epoch_id_,
          .number = number_,
          .rest = rest(index_in_epoch_)};
}

void Sampler::load_state(const SamplerState& state) {
  check(state.population == population_, "Sampler: a state of {} units for {}", state.population,
        population_);
  check(state.index_in_epoch >= 0 && state.index_in_epoch <= event_.batches,
        "Sampler: a state after {} of {} batches", state.index_in_epoch, event_.batches);
  Event event = event_;
  event.paid = state.index_in_epoch % event_.batches > 0;
  event.truncation_probability =
      state.event.truncation_probability;  // its last digits may differ on another machine
  check(state.event == event && state.expected_batch_size == expected_batch_size(),
        "Sampler: a state of other batches: {} and {} units on average for {} and {}",
        to_json(state.event), state.expected_batch_size, to_json(event), expected_batch_size());
  check(state.secure || !secure(), "Sampler: a state of seeded batches for secret ones");
  load_rest(state.index_in_epoch, state.rest);
  epoch_began_ = state.epoch_began;
  epoch_id_ = state.epoch_id;
  seek(state.index_in_epoch, state.number);
}

void Sampler::load_rest(std::int64_t /*index_in_epoch*/, const std::vector<std::int64_t>& rest) {
  check(rest.empty(), "Sampler: {}: a state with {} units of an epoch", name(event_.sampling),
        rest.size());
}

std::vector<std::int64_t> FullBatchSampler::sample(std::int64_t /*index_in_epoch*/) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(population()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace sotto
