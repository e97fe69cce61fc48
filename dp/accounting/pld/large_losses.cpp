#include "dp/accounting/pld/large_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// sum over the releases of E[value(loss); loss > x]
template <class Function>
double sum_above(const std::vector<SampledReleases>& releases, double x, const Function& value) {
  double sum = 0;
  for (const auto& [samples, count] : releases) {
    double above = 0;
    for (std::size_t i = samples->losses.size(); i-- > 0 && samples->losses[i] > x;) {
      above += samples->weights[i] * value(samples->losses[i]);
    }
    sum += count * above;
  }
  return sum;
}

// The delta due to a single loss.
double delta_of_one(const std::vector<SampledReleases>& releases, double epsilon) {
  return sum_above(releases, epsilon, [&](double loss) { return -std::expm1(epsilon - loss); });
}

// A bound on the delta due to two losses above x.
double delta_of_two(const std::vector<SampledReleases>& releases, double x) {
  return sum_above(releases, x, [](double) { return 1; }) *
         sum_above(releases, x, [](double loss) { return -std::expm1(-loss); });
}

// The loss at which a decreasing function reaches a value.
template <class Function>
double place_of(const Function& falling, double value) {
  constexpr double precision = 0.01, min = 1e-30, max = 1e6;
  double low = std::log(min), high = std::log(max);
  while (high - low > precision) {
    const double middle = std::midpoint(low, high);
    (falling(std::exp(middle)) > value ? low : high) = middle;
  }
  return std::exp(high);
}

// An estimate of epsilon for a normal sum with the mean and variance of the losses up to a limit.
double epsilon_of_many(const std::vector<SampledReleases>& releases, double limit, double delta) {
  double mean = 0, variance = 0;
  for (const auto& [samples, count] : releases) {
    double mass = 0, first = 0, second = 0;
    for (std::size_t i = 0; i < samples->losses.size() && samples->losses[i] <= limit; ++i) {
      const double loss = samples->losses[i], weight = samples->weights[i];
      mass += weight;
      first += weight * loss;
      second += weight * loss * loss;
    }
    mean += count * first / mass;
    variance += count * std::max(second / mass - first / mass * (first / mass), 0.0);
  }
  return std::max(mean, 0.0) + std::sqrt(-2 * std::log(delta) * variance);
}

}  // namespace

std::optional<LargeLossEstimate> large_loss_estimate(const std::vector<SampledReleases>& releases,
                                                     const PldQuery& question) {
  constexpr double part_of_two = 1e-6, may_decide = 0.1, decide = 0.5, min_delta = 1e-290;
  constexpr std::size_t max_kinds = 32;  // with more kinds, it takes long
  constexpr double few = 1e5;  // releases up to which the sum has a lattice as fine as requested
  if (releases.size() > max_kinds) return {};
  const bool of_epsilon = question.of == PldQuery::Of::epsilon;
  const auto of_one = [&](double epsilon) { return delta_of_one(releases, epsilon); };
  const double delta = of_epsilon ? question.given : of_one(question.given);
  if (delta < min_delta) return {};
  const double epsilon = of_epsilon ? place_of(of_one, delta / 2) : question.given;
  const double limit =
      place_of([&](double x) { return delta_of_two(releases, x); }, part_of_two * delta);
  const double ratio = epsilon / epsilon_of_many(releases, limit, delta);
  double count = 0;
  for (const SampledReleases& kind : releases) {
    if (kind.samples->losses.front() > limit) return {};
    count += kind.count;
  }
  if (!(ratio > (count < few ? decide : may_decide))) return {};
  return LargeLossEstimate{limit, epsilon, delta, releases.size() == 1 && ratio > decide};
}

void LargeLossCurve::add(const LargeLoss& large) {
  large_losses_.push_back(large);
  expected_ += large.expected;
  weight_ -= large.expected * std::expm1(-large.loss);
}

double LargeLossCurve::of_others(double epsilon) const {
  const double others = others_.delta(epsilon);
  if (bound_ == Bound::lower) return std::max(others, less_.kept - std::exp(epsilon));
  return std::min(others, sum_.delta(epsilon - less_.shift) / less_.mass);
}

double LargeLossCurve::delta(double epsilon) const {
  constexpr double rounding = 1e-9;
  double one = 0;
  for (const LargeLoss& large : large_losses_)
    one += large.expected * of_others(epsilon - large.loss);
  if (bound_ == Bound::lower) return std::min(sum_.delta(epsilon) + one * (1 - rounding), 1.0);
  const double two =
      expected_ * (weight_ + 0.5 * expected_ * std::min(sum_.delta(0) + expected_, 1.0));
  return std::min(sum_.delta(epsilon) + (one + two) * (1 + rounding), 1.0);
}

double LargeLossCurve::epsilon(double delta) const {
  constexpr double precision = 1e-7, first = 1e-12, growth = 4, max = 1e12;
  const auto excess = [&](double epsilon) { return std::log(this->delta(epsilon) / delta); };
  if (!(excess(0) > 0)) return 0;
  double low = 0, high = first;
  for (; excess(high) > 0; high *= growth) {
    if (high > max) return bound_ == Bound::lower ? low : infinity;
    low = high;
  }
  if (bound_ == Bound::upper) return safe_root(low, high, precision, excess);
  return safe_root(high, low, precision, [&](double epsilon) { return -excess(epsilon); });
}

}  // namespace sotto
