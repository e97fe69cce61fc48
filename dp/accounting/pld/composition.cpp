#include "dp/accounting/pld/composition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/threads/parallel.h"

namespace sotto {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double fine_accuracy = 2.5e-5, matched_accuracy = 0.01;

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

// The Chernoff bound: the tilted mass is counted as if all of it had the largest weight, which is
// what Renyi divergences prove (Canonne, Kamath and Steinke 2020, proposition 12).
double chernoff_bound(double log_moment, double tilt, const PldQuery& question,
                      double infinity_mass) {
  const double log_weight = log_largest_weight(tilt) + log_moment;
  if (question.of == PldQuery::Of::delta) {
    return std::min(std::exp(log_weight - tilt * question.given) + infinity_mass, 1.0);
  }
  const double delta = question.given - infinity_mass;
  return delta > 0 ? std::max((log_weight - std::log(delta)) / tilt, 0.0) : infinity;
}

// Rounds x >= 0 up or down to `bits` significant bits.
double rounded(double x, int bits, bool up) {
  int exponent = 0;
  const double digits = std::ldexp(std::frexp(x, &exponent), bits);
  return std::ldexp(up ? std::ceil(digits) : std::floor(digits), exponent - bits);
}

// The bits to which noise, rates and counts are rounded, and those of the delta or epsilon given:
// steps between such numbers change the answer by more than the errors of two answers differ
// (docs/appendix/proofs-accounting.md, section 5).
int bits_of_releases(const PldQuery& question) {
  return question.of == PldQuery::Of::epsilon ? 16 : 21;
}
int bits_of_given(const PldQuery& question) {
  return question.of == PldQuery::Of::epsilon ? 12 : 21;
}

}  // namespace

// The dominating pair that bounds an event.
PldComposition::Key PldComposition::key(const Event& event, Bound bound) const {
  const double rate = event.sampling_rate, sigma = event.noise_multiplier;
  if (relation_ == NeighboringRelation::add_or_remove_one)
    return {Adjacency::add_remove, rate, sigma};
  if (event.sampling != Sampling::fixed_size) return {Adjacency::replace, rate, sigma};
  const bool upper = bound == Bound::upper;
  return {upper ? Adjacency::replace_fixed_size : Adjacency::add_remove, rate, sigma / 2};
}

// Clamps noise and rates to the discretization's range, to the side of the bound: more noise and
// less sampling mean less loss. For upper bounds all numbers are rounded to few digits, so that
// nearly equal arguments have the same answer, and the answers of others differ by more than their
// errors.
PldComposition::Counts PldComposition::normalized(const std::map<Event, std::int64_t>& history,
                                                  int bits, Bound bound) const {
  constexpr double max_noise = 1e9, min_rate = 1e-12;
  // n releases with noise s sqrt(n) equal one with noise s, if unsampled
  constexpr double split_noise = 0.3;
  Counts counts;
  for (const auto& [event, releases] : history) {
    Key release = key(event, bound);
    double& rate = release.rate;
    double& sigma = release.noise;
    double count = static_cast<double>(releases);
    if (bound == Bound::lower && (sigma > max_noise || rate < min_rate)) continue;
    sigma = std::clamp(sigma, min_noise, max_noise);
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

const DiscretePld& PldComposition::discrete(const Key& key, Side side) {
  constexpr std::size_t max_kept = 8;
  const bool matched = rounding_ == Discretization::mean_matched;
  if (matched) side.bound = Bound::upper;  // one serves both bounds
  Kind& kind = kinds_.at(key);
  const auto known = kind.discrete.find(side);
  if (known != kind.discrete.end()) return known->second;
  if (kind.discrete.size() >= max_kept) kind.discrete.clear();
  DiscretePld pair = matched ? mean_matched(kind.pair, side.lattice.spacing, side.mirrored)
                             : discretise(kind.pair, side.lattice, side.bound, side.mirrored);
  return kind.discrete.emplace(side, std::move(pair)).first->second;
}

double PldComposition::log_moment(const Counts& counts, const Side& side, double tilt) {
  constexpr std::int64_t grain = 8;
  const std::vector<std::pair<Key, double>> kinds(counts.begin(), counts.end());
  std::vector<double> moments(kinds.size());
  parallel_for(std::ssize(kinds), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      moments[i] = kinds[i].second * sotto::log_moment(discrete(kinds[i].first, side), tilt);
  });
  return std::accumulate(moments.begin(), moments.end(), 0.0);
}

LossWindow PldComposition::window(const Counts& counts, const Side& side, const PldPlan& plan) {
  return tilted_window([&](double tilt) { return log_moment(counts, side, tilt); }, plan,
                       side.lattice.spacing);
}

// The sum leaves the cache while it changes, so that an exception leaves no counts without their
// terms.
const TiltedSum& PldComposition::sum(const Counts& counts, const SumKey& key) {
  constexpr std::size_t max_kept = 8;
  const auto empty = [&] {
    return Sum{TiltedSum(key.tilt, key.side.lattice.spacing, key.size), {}, {}};
  };
  auto place = sums_.extract(key);
  if (place.empty() && sums_.size() >= max_kept) sums_.clear();
  Sum known = place.empty() ? empty() : std::move(place.mapped());
  const bool grows = std::ranges::all_of(known.counts, [&](const auto& added) {
    const auto kind = counts.find(added.first);
    return kind != counts.end() && kind->second >= added.second;
  });
  if (!grows) known = empty();
  std::vector<std::pair<Key, double>> more;
  for (const auto& [kind, count] : counts) {
    double& added = known.counts[kind];
    if (count > added) more.emplace_back(kind, count - added);
    added = count;
  }
  if (more.size() == 1) {
    const auto& [kind, count] = more.front();
    if (!known.last || known.last->first != kind)
      known.last = {kind, known.sum.tilted(discrete(kind, key.side))};
    known.sum.add(known.last->second, count);
  } else {
    add(known.sum, key.side, more);
  }
  return sums_.emplace(key, std::move(known)).first->second.sum;
}

// Adds many kinds in order, as many at a time as have transforms of a few points together.
void PldComposition::add(TiltedSum& sum, const Side& side,
                         const std::vector<std::pair<Key, double>>& kinds) {
  constexpr std::int64_t few_points = 1 << 19;
  const std::int64_t together = std::max<std::int64_t>(1, few_points / sum.size());
  std::vector<TiltedLoss> losses(static_cast<std::size_t>(together));
  for (std::int64_t first = 0; first < std::ssize(kinds); first += together) {
    const std::int64_t here = std::min(together, std::ssize(kinds) - first);
    const auto* const kind = kinds.data() + first;
    parallel_for(here, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        losses[static_cast<std::size_t>(i)] = sum.tilted(discrete(kind[i].first, side));
    });
    for (std::int64_t i = 0; i < here; ++i)
      sum.add(losses[static_cast<std::size_t>(i)], kind[i].second);
  }
}

// The plan's window, on the lattice of `side` or on the first coarser one that is affordable.
std::optional<LossWindow> PldComposition::fit(const Counts& counts, Side& side,
                                              const PldPlan& plan) {
  if (!std::isnormal(side.lattice.spacing)) return {};
  LossWindow window = this->window(counts, side, plan);
  while (lattice_points(window, side.lattice.spacing) > max_lattice_points) {
    side.lattice.spacing *= 2;
    window = this->window(counts, side, plan);
  }
  if (!(lattice_points(window, side.lattice.spacing) <= max_lattice_points)) return {};
  return window;
}

// The answer from the discrete losses of one direction.
double PldComposition::composed(const Counts& counts, const Side& side, double tilt,
                                const LossWindow& window, const PldQuery& question) {
  const std::int64_t size = transform_size(lattice_points(window, side.lattice.spacing));
  const DeltaCurve curve(sum(counts, {side, tilt, size}), window, side.bound);
  const bool of_delta = question.of == PldQuery::Of::delta;
  const double answer = of_delta ? curve.delta(question.given) : curve.epsilon(question.given);
  if (side.bound == Bound::lower) return answer;
  return std::min(answer, chernoff(counts, side, tilt, question));
}

double PldComposition::answer(const Counts& counts, Side side, const PldPlan& plan,
                              const PldQuery& question) {
  const bool matched = rounding_ == Discretization::mean_matched;
  side.lattice = matched ? LossLattice{matched_spacing(counts, plan)} : plan.used;
  const bool merges = !matched && side.bound == Bound::lower;
  if (merges) side.lattice.spacing /= 2;  // merging takes twice the width
  const std::optional<LossWindow> window = fit(counts, side, plan);
  if (!window) return trivial_bound(question, side.bound);
  return matched ? matched_answer(counts, side, plan.tilt, *window, question)
                 : composed(counts, side, plan.tilt, *window, question);
}

// The best Chernoff bound over a geometric sequence of tilts around `tilt`.
double PldComposition::chernoff(const Counts& counts, const Side& side, double tilt,
                                const PldQuery& question) {
  double infinity_mass = 0, releases = 0;
  for (const auto& [key, count] : counts) {
    infinity_mass += count * discrete(key, side).infinity_mass;
    releases += count;
  }
  const double rounding = 1e-9 + 2 * mass_tolerance * releases;
  const auto bound = [&](double t) {
    return chernoff_bound(log_moment(counts, side, t) + rounding, t, question, infinity_mass);
  };
  double best = bound(tilt);
  for (const double factor : {0.5, 2.0}) {
    for (double t = factor * tilt, next = bound(t); next < best; next = bound(t *= factor)) {
      best = next;
    }
  }
  return best;
}

std::vector<SampledReleases> PldComposition::sampled(const Counts& counts) {
  std::vector<SampledReleases> releases;
  for (const auto& [key, count] : counts) {
    const auto kind = kinds_.try_emplace(key, key, tail_mass_truncation_).first;
    releases.push_back({&kind->second.samples, count});
  }
  return releases;
}

std::vector<PldPlanner> PldComposition::planners(const Counts& counts, const PldQuery& question) {
  const double accuracy =
      rounding_ == Discretization::mean_matched ? matched_accuracy : fine_accuracy;
  const std::vector<SampledReleases> releases = sampled(counts);
  std::vector<PldPlanner> result = {PldPlanner(releases, false, question, accuracy)};
  if (std::ranges::any_of(
          counts, [](const auto& kind) { return kind.first.change == Adjacency::add_remove; })) {
    result.emplace_back(releases, true, question, accuracy);
  }
  return result;
}

// Sets the mass to truncate from each kind's tails, in steps, so that similar queries share their
// work.
void PldComposition::truncate_tail(double log_mass) {
  constexpr double step = 8, min = -680;
  const double mass = std::exp(std::max(std::floor(log_mass / step) * step, min));
  if (mass == tail_mass_truncation_) return;
  tail_mass_truncation_ = mass;
  kinds_.clear();
  sums_.clear();
}

double PldComposition::answer(const std::map<Event, std::int64_t>& history, const PldQuery& asked,
                              Bound bound) {
  constexpr double first_log_delta = -30, min_log_delta = -600;
  const double margin = asked.of == PldQuery::Of::epsilon ? 16 : 10;
  PldQuery question = asked;
  if (bound == Bound::upper) question.given = rounded(asked.given, bits_of_given(asked), false);
  const Counts counts = normalized(history, bits_of_releases(asked), bound);
  if (counts.empty()) return 0;
  double total = 0;
  for (const auto& [key, count] : counts) total += count;
  const auto answer_from = [&](double log_delta) {
    truncate_tail(log_delta - std::log(total) - margin);
    return refined(counts, question, bound);
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

// The upper bound for the second direction, which hardly ever decides: on a coarse lattice if that
// suffices to show that it does not exceed the first direction's bound.
double PldComposition::of_other(const Counts& counts, const PldPlan& plan, const PldQuery& question,
                                double enough) {
  constexpr std::int64_t coarser = 4;
  PldPlan coarse = plan;
  coarse.used.spacing *= static_cast<double>(coarser);
  coarse.used.dense = std::max<std::int64_t>(coarse.used.dense / coarser, 1);
  const Side side{Bound::upper, true, {}};
  if (rounding_ == Discretization::connect_the_dots) {
    const double rough = answer(counts, side, coarse, question);
    if (rough <= enough) return rough;
  }
  return answer(counts, side, plan, question);
}

// The bounds of the two directions.
std::vector<double> PldComposition::answers(const Counts& counts, const Views& views,
                                            const PldQuery& question, Bound bound) {
  std::vector<double> list;
  for (std::size_t i = 0; i < views.plans.size(); ++i) {
    const bool jumping = i == 0 && views.jumps;
    double found = jumping ? with_large_losses(counts, question, bound, *views.jumps)
                           : trivial_bound(question, bound);
    if (!jumping || !views.jumps->decide || bound == Bound::lower) {
      const double other = i == 1 && bound == Bound::upper
                               ? of_other(counts, views.plans[i], question, list.front())
                               : answer(counts, {bound, i == 1, {}}, views.plans[i], question);
      found = bound == Bound::upper ? std::min(found, other) : std::max(found, other);
    }
    list.push_back(found);
  }
  return list;
}

// The upper bound, with plans that are improved until they fit their answer; the lower bound by the
// same plans.
double PldComposition::refined(const Counts& counts, const PldQuery& question, Bound bound) {
  constexpr int max_rounds = 6;
  const std::vector<PldPlanner> planners = this->planners(counts, question);
  double releases = 0;
  for (const auto& [key, count] : counts) releases += count;
  Views views;
  std::vector<PldPlan>& plans = views.plans;
  for (const PldPlanner& planner : planners) {
    plans.push_back(planner.first());
    plans.back().used = affordable(plans.front(), counts.size(), releases);
  }
  if (rounding_ == Discretization::connect_the_dots)
    views.jumps = large_loss_estimate(sampled(counts), question);
  double best = infinity;
  for (int round = 0; round < max_rounds; ++round) {
    // The second direction, which hardly ever decides, needs no smaller error than the first.
    if (rounding_ == Discretization::mean_matched) {
      for (PldPlan& plan : plans) plan.error = std::max(plan.error, plans.front().error);
    }
    const std::vector<double> list = answers(counts, views, question, Bound::upper);
    const double largest = std::ranges::max(list);
    best = std::min(best, largest);
    bool same = true;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (list[i] < largest || (i == 0 && views.jumps)) continue;  // another direction decides
      PldPlan next = planners[i].next(plans[i], list[i]);
      next.used = affordable(next, counts.size(), releases);
      if (next == plans[i]) continue;
      plans[i] = next;
      same = false;
    }
    if (same) break;
  }
  return bound == Bound::upper ? best : std::ranges::max(answers(counts, views, question, bound));
}

}  // namespace sotto
