#include "sotto/dp/pld_accountant.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "sotto/core/error.h"
#include "sotto/dp/analytic_gaussian.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

PldAccountant::PldAccountant(Relation relation) : relation_(relation), composition_(relation) {}

void PldAccountant::compose(const Event& event, std::int64_t count) {
  check_event("compose", event);
  check(count >= 0, "compose: {} releases", count);
  check(event.sampling == Sampling::full_batch || event.sampling == Sampling::poisson,
        "compose: the pld accountant has no proof for {} batches", sotto::name(event.sampling));
  if (count == 0 || event.sampling_rate == 0) return;
  if (event.noise_multiplier == 0) {
    without_noise_ = true;
  } else {
    history_[event] += count;
  }
}

double PldAccountant::epsilon(double delta, Bound bound) const {
  check(delta > 0 && delta < 1, "epsilon: delta {} is not in (0, 1)", delta);
  if (without_noise_) return infinity;
  if (total_variation() <= delta) return 0;
  if (unsampled(bound)) return gaussian_epsilon(gaussian_noise(), delta);
  return composition_.answer(history_, {PldQuestion::Of::epsilon, delta}, bound);
}

double PldAccountant::delta(double epsilon, Bound bound) const {
  check(epsilon >= 0 && std::isfinite(epsilon), "delta: epsilon {} is not a finite number >= 0",
        epsilon);
  if (without_noise_) return 1;
  if (history_.empty()) return 0;
  if (unsampled(bound)) return gaussian_delta(gaussian_noise(), epsilon);
  const double answer = composition_.answer(history_, {PldQuestion::Of::delta, epsilon}, bound);
  return bound == Bound::upper ? std::min(answer, total_variation()) : answer;
}

// Whether the history is taken as one of full batches: it is, or an upper bound is asked for where
// so little noise was added that sampling hardly helps.
bool PldAccountant::unsampled(Bound bound) const {
  bool full = true, noisy = true;
  for (const auto& [event, count] : history_) {
    full = full && event.sampling_rate == 1;
    noisy = noisy && event.noise_multiplier >= PldComposition::least_noise;
  }
  return full || (bound == Bound::upper && !noisy);
}

// Of the one unsampled release that all are, in units of the distance of its two means; 0 where the
// noise is too little for a number.
double PldAccountant::gaussian_noise() const {
  constexpr double least = 1e-100;
  double inverse = 0;
  for (const auto& [event, count] : history_) {
    inverse = std::hypot(inverse, std::sqrt(static_cast<double>(count)) / event.noise_multiplier);
  }
  const double noise = 1 / inverse / (relation_ == Relation::replace_one ? 2 : 1);
  return noise < least ? 0 : noise;
}

// A bound of delta at epsilon 0: total variation distances add, and sampling scales them.
double PldAccountant::total_variation() const {
  const double distance = relation_ == Relation::replace_one ? 2 : 1;
  double sum = 0;
  for (const auto& [event, count] : history_) {
    const double half = distance / (2 * std::numbers::sqrt2 * event.noise_multiplier);
    sum += static_cast<double>(count) * event.sampling_rate * std::erf(half);
  }
  constexpr double rounding = 1e-12;
  return std::min(sum * (1 + rounding), 1.0);
}

}  // namespace sotto
