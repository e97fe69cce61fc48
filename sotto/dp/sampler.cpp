#include "sotto/dp/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sotto/core/error.h"

namespace sotto {

namespace {

constexpr double two_to_64 = 0x1p64;

// The threshold for a rate, at least 1; 0 for a rate of 1.
std::uint64_t threshold_for(double rate) {
  check(rate > 0 && rate <= 1, "PoissonSampler: rate {} outside (0, 1]", rate);
  const double scaled = rate * two_to_64;
  if (scaled >= two_to_64) return 0;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(scaled));
}

// threshold / 2^64 as a double, never below.
double exact_rate(std::uint64_t threshold) {
  if (threshold == 0) return 1;
  double rounded = static_cast<double>(threshold);
  // Thresholds from a double have at most 53 significant bits, so this is only a guard.
  if (rounded < two_to_64 && static_cast<std::uint64_t>(rounded) < threshold)
    rounded = std::nextafter(rounded, two_to_64);
  return rounded / two_to_64;
}

}  // namespace

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
    : Sampler(population,
              {.sampling = Sampling::poisson, .sampling_rate = exact_rate(threshold_for(rate))}),
      threshold_(threshold_for(rate)),
      random_(std::move(random)) {}

// Compares a 64-bit coin with the threshold, most significant 16 bits first; the other 48 are drawn
// only when those are equal, which leaves the coin's distribution as it is.
bool PoissonSampler::heads(std::uint16_t first_bits) {
  const auto threshold_bits = static_cast<std::uint16_t>(threshold_ >> 48);
  if (first_bits != threshold_bits) return first_bits < threshold_bits;
  constexpr std::uint64_t low_48 = (std::uint64_t{1} << 48) - 1;
  return (random_.word() & low_48) < (threshold_ & low_48);
}

std::vector<std::int64_t> PoissonSampler::choose(std::int64_t /*place*/) {
  std::vector<std::int64_t> chosen;
  if (threshold_ == 0) {
    chosen.resize(static_cast<std::size_t>(population()));
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  constexpr std::int64_t coins_in_word = 4;
  words_.resize(static_cast<std::size_t>((population() + coins_in_word - 1) / coins_in_word));
  random_.fill(std::span<std::uint64_t>(words_));
  for (std::int64_t unit = 0; unit < population(); ++unit) {
    const std::uint64_t word = words_[static_cast<std::size_t>(unit / coins_in_word)];
    if (heads(static_cast<std::uint16_t>(word >> (16 * (unit % coins_in_word)))))
      chosen.push_back(unit);
  }
  return chosen;
}

std::vector<std::int64_t> FullBatchSampler::choose(std::int64_t /*place*/) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(population()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace sotto
