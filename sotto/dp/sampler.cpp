#include "sotto/dp/sampler.h"

#include <algorithm>
#include <numeric>

#include "sotto/core/error.h"

namespace sotto {

std::vector<std::span<const std::int64_t>> Draw::parts(std::int64_t limit) const {
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

void Sampler::number_from(std::uint64_t number) {
  number_ = number;
  place_ = 0;
  event_.paid = false;
}

Draw Sampler::draw() {
  Draw draw;
  draw.units_ = choose(place_);
  draw.event_ = event_;
  draw.separation_ = separation();
  draw.expected_size_ = expected_size();
  draw.number_ = number_++;
  draw.secure_ = secure();
  place_ = (place_ + 1) % event_.batches;
  event_.paid = place_ > 0;
  return draw;
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
