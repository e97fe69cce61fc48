#include "dp/accounting/pld/pld_accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/pld/composition.h"
#include "dp/accounting/rdp/rdp_accountant.h"

namespace sotto {

namespace {

using Counts = std::map<Event, std::int64_t>;

constexpr double infinity = std::numeric_limits<double>::infinity();

// The noise of one release, in units of the distance between the two means.
double relative_noise(const Event& event, NeighboringRelation relation) {
  return event.noise_multiplier / (relation == NeighboringRelation::replace_one ? 2 : 1);
}

// Returns whether the history is composed as full batches: it consists of them, or the query is for
// an upper bound and the noise is so small that sampling hardly helps.
bool unsampled(const Counts& history, NeighboringRelation relation, Bound bound) {
  bool full = true, noisy = true;
  for (const auto& [event, count] : history) {
    full = full && event.sampling_rate == 1;
    noisy = noisy && relative_noise(event, relation) >= PldComposition::min_noise;
  }
  return full || (bound == Bound::upper && !noisy);
}

// The noise, in units of the distance between its two means, of the one unsampled release that
// equals all; 0 if it is too small.
double gaussian_noise(const Counts& history, NeighboringRelation relation) {
  constexpr double min = 1e-100;
  double inverse = 0;
  for (const auto& [event, count] : history) {
    const double noise = relative_noise(event, relation);
    inverse = std::hypot(inverse, std::sqrt(static_cast<double>(count)) / noise);
  }
  return 1 / inverse < min ? 0 : 1 / inverse;
}

// A bound on delta at epsilon 0: total variation distances add up, and sampling scales them.
double total_variation(const Counts& history, NeighboringRelation relation) {
  double sum = 0;
  for (const auto& [event, count] : history) {
    const double half = 1 / (2 * std::numbers::sqrt2 * relative_noise(event, relation));
    sum += static_cast<double>(count) * event.sampling_rate * std::erf(half);
  }
  constexpr double rounding = 1e-12;
  return std::min(sum * (1 + rounding), 1.0);
}

// Bounds that are better in extreme cases: the total variation distance, and, if the answer is not
// far below it and that does not take long, Renyi divergences, which see the cancellation of many
// small losses.
double delta_in_corners(const Counts& history, NeighboringRelation relation, double epsilon,
                        double answer) {
  constexpr double near = 0.1;
  constexpr std::size_t max_kinds = 32;
  const double distance = total_variation(history, relation);
  if (answer < near * distance || history.size() > max_kinds) return distance;
  RdpAccountant renyi(default_orders(), relation);
  for (const auto& [event, count] : history) renyi.compose(event, count);
  return std::min(distance, renyi.delta(epsilon));
}

}  // namespace

PldAccountant::PldAccountant(NeighboringRelation relation)
    : PldAccountant(AccountantKind::pld, relation, Discretization::connect_the_dots) {}

PldAccountant::PldAccountant(AccountantKind kind, NeighboringRelation relation,
                             Discretization rounding)
    : Accountant(kind, relation),
      composition_(std::make_unique<PldComposition>(relation, rounding)) {}

PldAccountant::PldAccountant(PldAccountant&&) noexcept = default;
PldAccountant& PldAccountant::operator=(PldAccountant&&) noexcept = default;
PldAccountant::~PldAccountant() = default;

void PldAccountant::charge(const Event& event, std::int64_t count) {
  if (event.noise_multiplier == 0) {
    without_noise_ = true;
  } else {
    history_[event] += count;
  }
}

double PldAccountant::epsilon(double delta, Bound bound) const {
  if (bound == Bound::upper || without_noise_) return epsilon(delta);
  check_delta(delta);
  if (has_selection()) return 0;  // a lower bound of one run is none of the best of several
  const double all = charged_epsilon(delta, bound);
  if (truncation_probability() == 0) return all;
  const double more = delta + (1 + std::exp(all)) * truncation_probability();
  return more < 1 ? std::min(charged_epsilon(more, bound), all) : 0;
}

double PldAccountant::delta(double epsilon, Bound bound) const {
  if (bound == Bound::upper || without_noise_) return delta(epsilon);
  check_epsilon(epsilon);
  if (has_selection()) return 0;
  const double all = charged_delta(epsilon, bound);
  return truncation_probability() == 0
             ? all
             : std::max(all - (1 + std::exp(epsilon)) * truncation_probability(), 0.0);
}

double PldAccountant::charged_epsilon(double delta) const {
  return charged_epsilon(delta, Bound::upper);
}

double PldAccountant::charged_delta(double epsilon) const {
  return charged_delta(epsilon, Bound::upper);
}

double PldAccountant::charged_epsilon(double delta, Bound bound) const {
  if (without_noise_) return infinity;
  if (total_variation(history_, relation()) <= delta) return 0;
  if (unsampled(history_, relation(), bound))
    return gaussian_epsilon(gaussian_noise(history_, relation()), delta);
  return composition_->answer(history_, {PldQuery::Of::epsilon, delta}, bound);
}

double PldAccountant::charged_delta(double epsilon, Bound bound) const {
  if (without_noise_) return 1;
  if (history_.empty()) return 0;
  if (unsampled(history_, relation(), bound))
    return gaussian_delta(gaussian_noise(history_, relation()), epsilon);
  const double answer = composition_->answer(history_, {PldQuery::Of::delta, epsilon}, bound);
  return bound == Bound::upper
             ? std::min(answer, delta_in_corners(history_, relation(), epsilon, answer))
             : answer;
}

}  // namespace sotto
