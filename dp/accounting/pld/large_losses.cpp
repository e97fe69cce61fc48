#include "dp/accounting/pld/large_losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dp/accounting/pld/composition.h"
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

// The lattice of a plan: fine enough for large losses, with no more points than are affordable. If
// almost no loss is below the limit, only large losses, of about epsilon, count.
LossLattice affordable(const PldPlan& answer, const PldPlan& rest, double epsilon) {
  constexpr double few_points = 1 << 18;
  constexpr std::int64_t dense = 128;  // so that the width of a large loss is 1e-5 of its variance
  // rounding a loss down by this loses as large a fraction of its mass
  constexpr double fine = 0x1p-9;
  const auto width = [](const PldPlan& plan) {
    return 2 * std::sqrt(2 * plan.log_outside) * plan.stddev;
  };
  const double min = std::max(width(answer), width(rest)) / few_points;
  const double wanted = std::min({answer.lattice.spacing, epsilon / dense, fine});
  const double ratio = std::max(min / wanted, 1.0);
  return {.spacing = wanted * std::exp2(std::ceil(2 * std::log2(ratio)) / 2),
          .dense = std::max(answer.lattice.dense, dense)};
}

DiscretePld up_to(DiscretePld pair, double limit) {
  std::erase_if(pair.atoms, [&](const auto& atom) { return pair.loss(atom) > limit; });
  return pair;
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
  for (const SampledReleases& kind : releases) count += kind.count;
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

// The losses up to the limit of `count` releases of one kind.
struct PldComposition::Rest {
  DiscretePld pair;
  double count = 0;

  static double log_moment(const std::vector<Rest>& rests, double tilt) {
    double sum = 0;
    for (const Rest& rest : rests) sum += rest.count * sotto::log_moment(rest.pair, tilt);
    return sum;
  }
};

// The curve of their sum within a plan's window; nullopt if the window is too wide.
std::optional<DeltaCurve> PldComposition::curve_of(const std::vector<Rest>& rests, const Side& side,
                                                   const PldPlan& plan) {
  const double spacing = side.lattice.spacing;
  const LossWindow window =
      tilted_window([&](double tilt) { return Rest::log_moment(rests, tilt); }, plan, spacing);
  const double size = lattice_points(window, spacing);
  if (!(size <= max_lattice_points)) return {};
  TiltedSum sum(plan.tilt, spacing, transform_size(size));
  for (const Rest& rest : rests) {
    if (rest.count > 0) sum.add(sum.tilted(rest.pair), rest.count);
  }
  return DeltaCurve(sum, window, side.bound);
}

// The others, besides a release with a large loss: with one kind, one release less. With several
// kinds, one less of each kind for a lower bound, and all for an upper bound; to bound one release
// less by all, the rest of a release must be normalized, divided by its mass and shifted by a loss.
std::optional<LargeLossCurve> PldComposition::large_loss_curve(const Counts& counts,
                                                               const Side& side,
                                                               const LargeLossPlan& plan) {
  std::vector<Rest> all, others, one_of_each;
  const bool upper = side.bound == Bound::upper, less = !upper || counts.size() == 1;
  double releases = 0;
  for (const auto& [key, count] : counts) {
    all.push_back({up_to(discrete(key, side), plan.limit), count});
    one_of_each.push_back({all.back().pair, 1});
    others.push_back({all.back().pair, less ? count - 1 : count});
    releases += count;
  }
  const auto sum = curve_of(all, side, plan.at_answer), rest = curve_of(others, side, plan.at_rest);
  if (!sum || !rest) return {};
  const double rounding = 1e-9 + 2 * mass_tolerance * releases;
  const double log_masses = less ? Rest::log_moment(one_of_each, 0) : 0;
  const double shifts = less ? Rest::log_moment(one_of_each, -1) - log_masses : 0;
  // Shifts are rounded to the side of the bound; the large losses of a single kind are not shifted.
  const double error = 4 * mass_tolerance * static_cast<double>(counts.size());
  const double margin = counts.size() == 1 ? 0 : upper ? error : -error;
  LargeLossCurve curve(*sum, *rest, side.bound,
                       {.shift = shifts + error,
                        .mass = std::exp(log_masses),
                        .kept = std::exp(Rest::log_moment(others, 0) - rounding)});
  auto kept = all.begin();
  for (const auto& [key, count] : counts) {
    const DiscretePld& pair = discrete(key, side);
    const double log_mass = sotto::log_moment(kept->pair, 0);
    const double shift = sotto::log_moment((kept++)->pair, -1) - log_mass - shifts + margin;
    const double factor = count * std::exp(log_masses - log_mass);
    for (const auto& atom : pair.atoms) {
      const double loss = pair.loss(atom);
      if (loss > plan.limit) curve.add({loss + shift, factor * std::exp(atom.log_mass)});
    }
  }
  return curve;
}

double PldComposition::large_loss_answer(const Counts& counts, const Side& side,
                                         const LargeLossPlan& plan, const PldQuery& question) {
  const auto curve = large_loss_curve(counts, side, plan);
  if (!curve) return trivial_bound(question, side.bound);
  return question.of == PldQuery::Of::delta ? curve->delta(question.given)
                                            : curve->epsilon(question.given);
}

// The answer for (P, Q) when one loss above the limit may decide.
double PldComposition::with_large_losses(const Counts& counts, const PldQuery& question,
                                         Bound bound, const LargeLossEstimate& estimate) {
  constexpr int max_rounds = 4;
  std::vector<LossSamples> samples;
  std::vector<SampledReleases> releases;
  samples.reserve(counts.size());
  for (const auto& [key, count] : counts) {
    samples.push_back(kinds_.at(key).samples.up_to(estimate.limit));
    releases.push_back({&samples.back(), count});
  }
  const PldPlanner planner(releases, question);
  LargeLossPlan plan{.limit = estimate.limit,
                     .at_answer = planner.near(estimate.epsilon, estimate.delta),
                     .at_rest = planner.at_rest(estimate.limit, estimate.delta)};
  double best = trivial_bound(question, Bound::upper);
  for (int round = 0; round < max_rounds; ++round) {
    const LossLattice lattice = affordable(plan.at_answer, plan.at_rest, estimate.epsilon);
    const Side side{Bound::upper, false, lattice};
    const double answer = large_loss_answer(counts, side, plan, question);
    best = std::min({best, answer, chernoff(counts, side, plan.at_answer.tilt, question)});
    if (round + 1 == max_rounds) break;
    PldPlan next = planner.next(plan.at_answer, answer);
    if (next == plan.at_answer) break;
    plan.at_answer = next;
  }
  if (bound == Bound::upper) return best;
  LossLattice lattice = affordable(plan.at_answer, plan.at_rest, estimate.epsilon);
  lattice.spacing /= 2;  // merging takes twice the width
  return large_loss_answer(counts, {Bound::lower, false, lattice}, plan, question);
}

}  // namespace sotto
