#include "dp/accounting/pld/composition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "dp/accounting/pld/large_loss_composition.h"
#include "dp/accounting/pld/prv_composition.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double fine_accuracy = 2.5e-5, matched_accuracy = 0.01;

// Rounds x >= 0 up or down to `bits` significant bits.
double rounded(double x, int bits, bool up) {
  int exponent = 0;
  const double digits = std::ldexp(std::frexp(x, &exponent), bits);
  return std::ldexp(up ? std::ceil(digits) : std::floor(digits), exponent - bits);
}

// The bits to which noise, rates, counts, and the given delta or epsilon are rounded. A step
// between such numbers changes the answer by more than the errors of two answers differ
// (docs/appendix/proofs-accounting.md, section 5).
int bits_of_releases(const PldQuery& question) {
  return question.of == PldQuery::Of::epsilon ? 16 : 21;
}
int bits_of_given(const PldQuery& question) {
  return question.of == PldQuery::Of::epsilon ? 12 : 21;
}

// The dominating pair that bounds an event.
SampledGaussian dominating_release(const Event& event, NeighboringRelation relation, Bound bound) {
  const double rate = event.sampling_rate, sigma = event.noise_multiplier;
  if (relation == NeighboringRelation::add_or_remove_one)
    return {Adjacency::add_remove, rate, sigma};
  if (event.sampling != Sampling::fixed_size) return {Adjacency::replace, rate, sigma};
  const bool upper = bound == Bound::upper;
  return {upper ? Adjacency::replace_fixed_size : Adjacency::add_remove, rate, sigma / 2};
}

// Clamps noise and rates to the discretization's range, to the side of the bound: more noise and
// less sampling mean less loss. For upper bounds all numbers are rounded to few digits: nearly
// equal arguments then have equal answers, and different ones have answers that differ by more than
// their errors.
ReleaseCounts normalized(const std::map<Event, std::int64_t>& history, NeighboringRelation relation,
                         int bits, Bound bound) {
  constexpr double max_noise = 1e9, min_rate = 1e-12;
  // n releases with noise s sqrt(n) equal one with noise s, if unsampled
  constexpr double split_noise = 0.3;
  ReleaseCounts counts;
  for (const auto& [event, releases] : history) {
    SampledGaussian release = dominating_release(event, relation, bound);
    double& rate = release.rate;
    double& sigma = release.noise;
    double count = static_cast<double>(releases);
    if (bound == Bound::lower && (sigma > max_noise || rate < min_rate)) continue;
    sigma = std::clamp(sigma, PldComposition::min_noise, max_noise);
    rate = std::max(rate, min_rate);
    if (bound == Bound::upper) {
      sigma = rounded(sigma, bits, false);
      rate = rate > 0.5 ? 1 - rounded(1 - rate, bits, false) : rounded(rate, bits, true);
      count = rounded(count, bits, true);
    }
    if (rate == 1 && sigma < split_noise) {
      const double parts = std::ceil(split_noise / sigma * (split_noise / sigma));
      sigma *= std::sqrt(parts);
      count *= parts;
    }
    counts[release] += count;
  }
  return counts;
}

// The lattice that a plan uses: a finer one than planned if that is cheap, or a coarser one, with
// up to 36 times the error, if the planned one takes too long.
LossLattice affordable(const PldPlan& plan, std::size_t kinds, double releases) {
  constexpr double few_points = 1 << 18, cheap_points = 1 << 15, many_kinds = 20;
  constexpr double max_coarser = 6, max_finer = 64, few_releases = 1e5;
  const double share = std::max(1.0, static_cast<double>(kinds) / many_kinds);
  // With few kinds, a window wider than that of a normal sum may take its time; with many releases,
  // at most twice the time.
  const double normal = 2 * std::sqrt(2 * plan.log_outside) * plan.stddev;
  const double width = share > 1                 ? plan.width
                       : releases > few_releases ? std::max(normal, plan.width / 2)
                                                 : normal;
  const double cheap = std::exp2(std::ceil(2 * std::log2(width * share / cheap_points)) / 2);
  const double min = std::max({cheap, plan.finest, plan.lattice.spacing / max_finer});
  if (min <= plan.lattice.spacing) return {.spacing = min, .dense = plan.lattice.dense};
  const double points = width / plan.lattice.spacing;
  const double ratio = std::clamp(points * share / few_points, 1.0, max_coarser);
  const double coarser = std::exp2(std::ceil(2 * std::log2(ratio)) / 2);
  const unsigned times = std::max(static_cast<unsigned>(coarser), 1U);
  const auto sparser = static_cast<std::int64_t>(std::bit_floor(times));
  return {.spacing = plan.lattice.spacing * coarser,
          .dense = std::max<std::int64_t>(plan.lattice.dense / sparser, 1)};
}

// The bound from one side by a plan.
double planned_bound(const ComposedQuery& query, PldSide side, const PldPlan& plan) {
  const bool matched = query.losses.rounding() == Discretization::mean_matched;
  side.lattice = matched ? LossLattice{matched_spacing(query, plan)} : plan.used;
  const bool merges = !matched && side.bound == Bound::lower;
  if (merges) side.lattice.spacing /= 2;  // merging takes twice the width
  const std::optional<LossWindow> window = fit_window(query, side, plan);
  if (!window) return trivial_bound(query.question, side.bound);
  return matched ? matched_bound(query, side, plan.tilt, *window)
                 : side_bound(query, side, plan.tilt, *window);
}

// A planner for (P, Q), and one for (Q, P) unless that is its mirror image.
std::vector<PldPlanner> planners_of(const ComposedQuery& query) {
  const double accuracy =
      query.losses.rounding() == Discretization::mean_matched ? matched_accuracy : fine_accuracy;
  const std::vector<SampledReleases> releases = query.losses.sampled(query.counts);
  std::vector<PldPlanner> result = {PldPlanner(releases, false, query.question, accuracy)};
  if (std::ranges::any_of(query.counts, [](const auto& kind) {
        return kind.first.change == Adjacency::add_remove;
      })) {
    result.emplace_back(releases, true, query.question, accuracy);
  }
  return result;
}

// The upper bound for the second direction, which hardly ever decides: on a coarse lattice if that
// suffices to show that it does not exceed the first direction's bound.
double other_direction_bound(const ComposedQuery& query, const PldPlan& plan, double enough) {
  constexpr std::int64_t coarser = 4;
  PldPlan coarse = plan;
  coarse.used.spacing *= static_cast<double>(coarser);
  coarse.used.dense = std::max<std::int64_t>(coarse.used.dense / coarser, 1);
  const PldSide side{Bound::upper, true, {}};
  if (query.losses.rounding() == Discretization::connect_the_dots) {
    const double rough = planned_bound(query, side, coarse);
    if (rough <= enough) return rough;
  }
  return planned_bound(query, side, plan);
}

// The plans for both directions.
struct DirectionPlans {
  std::vector<PldPlan> plans;
  std::optional<LargeLossEstimate> large_losses;  // for the first direction
};

// The bounds of the two directions.
std::vector<double> direction_bounds(const ComposedQuery& query, const DirectionPlans& directions,
                                     Bound bound) {
  std::vector<double> list;
  for (std::size_t i = 0; i < directions.plans.size(); ++i) {
    const bool large = i == 0 && directions.large_losses;
    double found = large ? large_loss_bound(query, bound, *directions.large_losses)
                         : trivial_bound(query.question, bound);
    if (!large || !directions.large_losses->decide || bound == Bound::lower) {
      const double other = i == 1 && bound == Bound::upper
                               ? other_direction_bound(query, directions.plans[i], list.front())
                               : planned_bound(query, {bound, i == 1, {}}, directions.plans[i]);
      found = bound == Bound::upper ? std::min(found, other) : std::max(found, other);
    }
    list.push_back(found);
  }
  return list;
}

// The upper bound, with plans that are improved until they fit their answer; the lower bound by the
// same plans.
double refined_bound(const ComposedQuery& query, Bound bound) {
  constexpr int max_rounds = 6;
  const std::vector<PldPlanner> planners = planners_of(query);
  double releases = 0;
  for (const auto& [key, count] : query.counts) releases += count;
  DirectionPlans directions;
  std::vector<PldPlan>& plans = directions.plans;
  for (const PldPlanner& planner : planners) {
    plans.push_back(planner.first());
    plans.back().used = affordable(plans.front(), query.counts.size(), releases);
  }
  if (query.losses.rounding() == Discretization::connect_the_dots)
    directions.large_losses =
        large_loss_estimate(query.losses.sampled(query.counts), query.question);
  double best = infinity;
  for (int round = 0; round < max_rounds; ++round) {
    // The second direction, which hardly ever decides, needs no smaller error than the first.
    if (query.losses.rounding() == Discretization::mean_matched) {
      for (PldPlan& plan : plans) plan.error = std::max(plan.error, plans.front().error);
    }
    const std::vector<double> list = direction_bounds(query, directions, Bound::upper);
    const double largest = std::ranges::max(list);
    best = std::min(best, largest);
    bool same = true;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (list[i] < largest || (i == 0 && directions.large_losses))
        continue;  // another direction decides
      PldPlan next = planners[i].next(plans[i], list[i]);
      next.used = affordable(next, query.counts.size(), releases);
      if (next == plans[i]) continue;
      plans[i] = next;
      same = false;
    }
    if (same) break;
  }
  return bound == Bound::upper ? best
                               : std::ranges::max(direction_bounds(query, directions, bound));
}

}  // namespace

double PldComposition::answer(const std::map<Event, std::int64_t>& history, const PldQuery& asked,
                              Bound bound) {
  constexpr double first_log_delta = -30, min_log_delta = -600;
  const double margin = asked.of == PldQuery::Of::epsilon ? 16 : 10;
  PldQuery question = asked;
  if (bound == Bound::upper) question.given = rounded(asked.given, bits_of_given(asked), false);
  const ReleaseCounts counts = normalized(history, relation_, bits_of_releases(asked), bound);
  if (counts.empty()) return 0;
  double total = 0;
  for (const auto& [key, count] : counts) total += count;
  const auto answer_from = [&](double log_delta) {
    losses_.truncate_tails(log_delta - std::log(total) - margin);
    return refined_bound({losses_, counts, question}, bound);
  };
  if (question.of == PldQuery::Of::epsilon) return answer_from(std::log(question.given));
  // A bound holds for every truncated mass. Truncating less can prove a smaller delta, but leaves
  // tails so heavy that no tilt avoids them.
  double log_delta = first_log_delta, best = answer_from(log_delta);
  while (std::log(best) < log_delta && log_delta > min_log_delta) {
    log_delta *= 2;
    const double next = answer_from(log_delta);
    if (bound == Bound::upper && next >= best) break;
    best = bound == Bound::upper ? next : std::max(best, next);
  }
  return best;
}

}  // namespace sotto
