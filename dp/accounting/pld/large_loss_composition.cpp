#include "dp/accounting/pld/large_loss_composition.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace sotto {

namespace {

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

// A plan for answers in which one loss above `limit` may decide; such losses are not in the sum.
struct LargeLossPlan {
  double limit = 0;
  PldPlan at_answer, at_rest;
};

// The losses up to the limit of `count` releases of one kind.
struct Rest {
  DiscretePld pair;
  double count = 0;

  static double log_moment(const std::vector<Rest>& rests, double tilt) {
    double sum = 0;
    for (const Rest& rest : rests)
      if (rest.count > 0) sum += rest.count * sotto::log_moment(rest.pair, tilt);
    return sum;
  }
};

// The curve of their sum within a plan's window; nullopt if the window is too wide, or if merging
// outcomes left no loss up to the limit.
std::optional<DeltaCurve> curve_of(const std::vector<Rest>& rests, const PldSide& side,
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

// Composition of the remaining releases, given one with a large loss. One kind: one release fewer.
// Several kinds: for a lower bound, one fewer of each kind; for an upper bound, all of them. To
// bound n - 1 releases by n, the rest of a release must be normalized: divided by its mass and
// shifted by a loss.
std::optional<LargeLossCurve> large_loss_curve(const ComposedQuery& query, const PldSide& side,
                                               const LargeLossPlan& plan) {
  const ReleaseCounts& counts = query.counts;
  std::vector<Rest> all, others, one_of_each;
  const bool upper = side.bound == Bound::upper, less = !upper || counts.size() == 1;
  double releases = 0;
  for (const auto& [key, count] : counts) {
    all.push_back({up_to(query.losses.discrete(key, side), plan.limit), count});
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
    const DiscretePld& pair = query.losses.discrete(key, side);
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

// The bound from one side by such a plan.
double planned_bound(const ComposedQuery& query, const PldSide& side, const LargeLossPlan& plan) {
  const PldQuery& question = query.question;
  const auto curve = large_loss_curve(query, side, plan);
  if (!curve) return trivial_bound(question, side.bound);
  return question.of == PldQuery::Of::delta ? curve->delta(question.given)
                                            : curve->epsilon(question.given);
}

}  // namespace

double large_loss_bound(const ComposedQuery& query, Bound bound,
                        const LargeLossEstimate& estimate) {
  constexpr int max_rounds = 4;
  std::vector<LossSamples> samples;
  std::vector<SampledReleases> releases = query.losses.sampled(query.counts);
  samples.reserve(releases.size());
  for (SampledReleases& kind : releases) {
    samples.push_back(kind.samples->up_to(estimate.limit));
    kind.samples = &samples.back();
  }
  const PldPlanner planner(releases, query.question);
  LargeLossPlan plan{.limit = estimate.limit,
                     .at_answer = planner.near(estimate.epsilon, estimate.delta),
                     .at_rest = planner.at_rest(estimate.limit, estimate.delta)};
  double best = trivial_bound(query.question, Bound::upper);
  for (int round = 0; round < max_rounds; ++round) {
    const LossLattice lattice = affordable(plan.at_answer, plan.at_rest, estimate.epsilon);
    const PldSide side{Bound::upper, false, lattice};
    const double answer = planned_bound(query, side, plan);
    best = std::min({best, answer, chernoff(query, side, plan.at_answer.tilt)});
    if (round + 1 == max_rounds) break;
    PldPlan next = planner.next(plan.at_answer, answer);
    if (next == plan.at_answer) break;
    plan.at_answer = next;
  }
  if (bound == Bound::upper) return best;
  LossLattice lattice = affordable(plan.at_answer, plan.at_rest, estimate.epsilon);
  lattice.spacing /= 2;  // merging takes twice the width
  return planned_bound(query, {Bound::lower, false, lattice}, plan);
}

}  // namespace sotto
