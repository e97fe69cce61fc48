#include "dp/sampling/sampler.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace sotto {

std::vector<std::span<const std::int64_t>> SampledBatch::parts(std::int64_t limit) const {
  check(limit >= 1, "parts: {} units at a time", limit);
  const std::span<const std::int64_t> all(units_);
  std::vector<std::span<const std::int64_t>> parts;
  for (std::size_t at = 0; at < all.size() || at == 0; at += static_cast<std::size_t>(limit)) {
    parts.push_back(all.subspan(at, std::min(static_cast<std::size_t>(limit), all.size() - at)));
  }
  return parts;
}

Sampler::Sampler(std::int64_t population, const Event& first)
    : population_(population), event_(first) {
  check(population >= 1, "Sampler: a population of {}", population);
  check_event("Sampler", first);
}

void Sampler::seek(std::int64_t place, std::uint64_t number) {
  place_ = place;
  number_ = number;
  event_.paid = place % event_.batches > 0;
}

void Sampler::resume_from(std::uint64_t number) { seek(0, number); }

SampledBatch Sampler::draw() {
  const bool over = place_ == event_.batches;
  check(!over || repeats(), "Sampler: {}: all {} batches of the plan were drawn",
        name(event_.sampling), place_);
  const std::int64_t place = over ? 0 : place_;
  SampledBatch draw;
  draw.units_ = choose(place);
  draw.event_ = event_;
  draw.separation_ = separation();
  draw.expected_size_ = expected_batch_size();
  draw.population_ = population_;
  draw.number_ = number_;
  draw.place_ = place;
  if (place == 0) pass_ = number_;
  draw.pass_ = pass_;
  draw.secure_ = secure();
  seek(place + 1, number_ + 1);
  return draw;
}

SamplerState Sampler::state() const {
  return {.event = event_,
          .population = population_,
          .expected_batch_size = expected_batch_size(),
          .secure = secure(),
          .place = place_,
          .pass = pass_,
          .number = number_,
          .rest = rest(place_)};
}

void Sampler::load_state(const SamplerState& state) {
  check(state.population == population_, "Sampler: a state of {} units for {}", state.population,
        population_);
  check(state.place >= 0 && state.place <= event_.batches,
        "Sampler: a state after {} of {} batches", state.place, event_.batches);
  Event event = event_;
  event.paid = state.place % event_.batches > 0;
  event.cut = state.event.cut;  // its last digits may differ on another machine
  check(state.event == event && state.expected_batch_size == expected_batch_size(),
        "Sampler: a state of other batches: {} and {} units on average for {} and {}",
        to_json(state.event), state.expected_batch_size, to_json(event), expected_batch_size());
  check(state.secure || !secure(), "Sampler: a state of seeded batches for secret ones");
  load_rest(state.place, state.rest);
  pass_ = state.pass;
  seek(state.place, state.number);
}

void Sampler::load_rest(std::int64_t /*place*/, const std::vector<std::int64_t>& rest) {
  check(rest.empty(), "Sampler: {}: a state with {} units of an epoch", name(event_.sampling),
        rest.size());
}

PoissonSampler::PoissonSampler(std::int64_t population, double rate, SecretRandom random)
    : Sampler(population, {.sampling = Sampling::poisson,
                           .sampling_rate = IndependentSubset("PoissonSampler", rate).rate()}),
      subset_("PoissonSampler", rate),
      random_(std::move(random)) {}

std::vector<std::int64_t> FullBatchSampler::choose(std::int64_t /*place*/) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(population()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace sotto
