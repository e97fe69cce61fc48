#include "dp/accounting/pld/loss_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sotto {

namespace {

// Adds the moments of `count` losses to a sum. The losses increase, so the largest exponent is at
// one of the ends.
void add(Cumulants& sum, const LossSamples& samples, double count, double tilt) {
  const double shift = std::max(tilt * samples.losses.front(), tilt * samples.losses.back());
  double total = 0, first = 0, second = 0, spread = 0;
  for (std::size_t i = 0; i < samples.losses.size(); ++i) {
    const double weight = samples.weights[i] * std::exp(tilt * samples.losses[i] - shift);
    const double loss = samples.losses[i] - samples.centre;
    total += weight;
    first += weight * loss;
    second += weight * loss * loss;
    spread += weight * std::abs(loss);
  }
  const double mean = first / total, square = second / total;
  sum.value += count * (shift + std::log(total));
  sum.mean += count * (samples.centre + mean);
  sum.variance += count * std::max(square - mean * mean, 0.0);
  sum.spread += count * spread / total;
  sum.square += count * square;
}

}  // namespace

LossSamples::LossSamples(const DominatingPair& pair) : centre(pair.centre()) {
  constexpr int together = 4;     // adjacent points are replaced by their mean
  constexpr double min = 1e-300;  // smaller masses are denormal
  double mass = 0, first = 0;
  int points = 0;
  pair.integrate(pair.lowest(), pair.highest(), [&](double weight, double loss) {
    mass += weight;
    first += weight * loss;
    if (++points % together != 0) return;
    if (mass > min) {
      weights.push_back(mass);
      losses.push_back(losses.empty() ? first / mass : std::max(first / mass, losses.back()));
    }
    mass = first = 0;
  });
  if (pair.without_loss() == 0) return;
  const auto place = std::ranges::lower_bound(losses, 0.0) - losses.begin();
  losses.insert(losses.begin() + place, 0.0);
  weights.insert(weights.begin() + place, pair.without_loss());
}

LossSamples LossSamples::up_to(double loss) const {
  const auto size = std::ranges::upper_bound(losses, loss) - losses.begin();
  LossSamples result = *this;
  result.losses.resize(static_cast<std::size_t>(size));
  result.weights.resize(static_cast<std::size_t>(size));
  return result;
}

SampledCumulants::SampledCumulants(std::vector<SampledReleases> releases, bool mirrored)
    : releases_(std::move(releases)), mirrored_(mirrored) {
  const Cumulants untilted = at(0);
  value_at_0_ = untilted.value;
  for (const auto& [samples, count] : releases_) count_ += count;
  typical_ = untilted.spread / count_;
}

Cumulants SampledCumulants::at(double tilt) const {
  Cumulants sum;
  // E_Q[e^{-tilt loss}] = E_P[e^{-(1 + tilt) loss}]
  for (const auto& [samples, count] : releases_) {
    add(sum, *samples, count, mirrored_ ? -1 - tilt : tilt);
  }
  sum.value -= value_at_0_;
  if (mirrored_) sum.mean = -sum.mean;
  return sum;
}

}  // namespace sotto
