#include "dp/engine/noise_schedule.h"

#include <algorithm>
#include <cmath>

#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/accounting/adaptive_accountant.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/selection_cost.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/subset.h"

namespace sotto {

namespace {

EventCounts planned_means(const EngineOptions& options) {
  EventCounts releases;
  for (const PlannedMeans& means : options.planned_means) {
    check(means.times >= 1, "Engine: means planned {} times", means.times);
    add_releases(releases,
                 {.noise_multiplier = means.noise_multiplier,
                  .sampling = Sampling::poisson,
                  .sampling_rate = IndependentSubset("Engine", means.sampling_rate).rate()},
                 means.times);
  }
  return releases;
}

// Returns a factory of accountants that already contain everything else that the target epsilon
// must cover: the planned means and the ledger's releases. These make the history adaptive, since
// the settings could be chosen by looking at them. A resumed run skips the releases: its noise was
// calibrated when it began.
AccountantFactory accountant_of_rest(const EngineOptions& options, const Ledger& ledger) {
  const History history = ledger.history();
  const EventCounts released = ledger.resumed() ? EventCounts{} : history.events;
  const NeighboringRelation relation = ledger.header().relation;
  const AccountantFactory ordinary = accountant_factory(options.accountant, relation);
  const AccountantFactory start =
      released.empty() ? ordinary : adaptive_accountant_factory(relation, history.plans);
  std::optional<SelectionCost> cost;
  if (history.selection && !released.empty()) cost = selection_cost(*history.selection, ordinary);
  EventCounts others = planned_means(options);
  for (const auto& [event, count] : released) add_releases(others, event, count);
  if (others.empty()) return start;
  return [start, others, cost] {
    auto accountant = start();
    if (cost) accountant->charge_selection(*cost);
    for (const auto& [event, count] : others) accountant->compose(event, count);
    return accountant;
  };
}

double initial_noise(const EngineOptions& options, const Sampler& sampler, const Ledger& ledger) {
  if (options.noise_multiplier) return *options.noise_multiplier;
  PrivacyTarget target{.epsilon = *options.target_epsilon,
                       .delta = options.delta,
                       .batch = sampler.event(),
                       .steps = options.steps};
  if (options.noise_schedule) {
    target.noise_at = [&](std::int64_t step, double first) {
      return options.noise_schedule->value(step, first);
    };
  }
  const AccountantFactory accountant = accountant_of_rest(options, ledger);
  const double others = accountant()->epsilon(options.delta);
  constexpr double min_left = 1e-3;  // of the target: a smaller rest would need absurd noise
  check(others < (1 - min_left) * target.epsilon,
        "Engine: nothing is left of the target epsilon {:.6g}: what the ledger holds and planned "
        "means cost {:.6g}, with releases to follow that could be chosen by looking at them",
        target.epsilon, others);
  return calibrate_noise_multiplier(target, accountant);
}

}  // namespace

bool counts_finite(const EngineOptions& options) {
  return options.loss_scaling.adjust == memory::LossScaling::Adjust::on_release;
}

NoiseSchedule::NoiseSchedule(const EngineOptions& options, const Sampler& sampler,
                             const Ledger& ledger)
    : options_(options),
      sampler_(sampler),
      initial_(broadcast(*ranks_or_one(options.ranks), "Engine: noise multiplier",
                         [&] { return initial_noise(options, sampler, ledger); })) {}

double NoiseSchedule::noise_at(std::int64_t step) const {
  if (!options_.noise_schedule) return initial_;
  return options_.noise_schedule->value(step, initial_);
}

EventCounts NoiseSchedule::planned(std::int64_t from, std::int64_t to) const {
  Event event = sampler_.event();
  event.noise_multiplier = initial_;
  EventCounts releases;
  for (std::int64_t step = from; options_.noise_schedule && step < to; ++step) {
    event.noise_multiplier = noise_at(step);
    add_releases(releases, event, 1);
  }
  if (options_.noise_schedule) return releases;
  // The first draw of every epoch (of `batches` draws) is charged for the whole epoch.
  const std::int64_t before = (event.batches - sampler_.index_in_epoch()) % event.batches;
  const std::int64_t draws = to - from;
  const std::int64_t passes =
      (std::max<std::int64_t>(0, draws - before) + event.batches - 1) / event.batches;
  event.paid = false;
  if (passes > 0) releases.emplace_back(event, passes);
  event.paid = true;
  if (draws > passes) releases.emplace_back(event, draws - passes);
  return releases;
}

EventCounts NoiseSchedule::whole_plan() const {
  EventCounts all = planned(0, options_.steps);
  for (const auto& [event, count] : planned_means(options_)) add_releases(all, event, count);
  return all;
}

double NoiseSchedule::unclipped_count_stddev(double expected_batch_size) const {
  if (!options_.adaptive_clipping && !counts_finite(options_)) return 0;
  return options_.adaptive_clipping.value_or(AdaptiveClipping{})
      .unclipped_count_stddev_for(expected_batch_size);
}

void NoiseSchedule::check_counts(std::size_t groups) const {
  const double stddev = unclipped_count_stddev(sampler_.expected_batch_size());
  if (stddev == 0) return;
  const double number = static_cast<double>(groups) + (counts_finite(options_) ? 1 : 0);
  const double counts = 2 * stddev / std::sqrt(number);
  for (std::int64_t step = 0; step < std::max<std::int64_t>(1, options_.steps); ++step) {
    check(noise_at(step) == 0 || noise_at(step) < counts,
          "Engine: the counts of adaptive clipping and loss scaling alone, with a noise multiplier "
          "of {:.6g}, are less "
          "private than the noise multiplier {:.6g} at step {} (raise unclipped_count_stddev)",
          counts, noise_at(step), step);
    if (!options_.noise_schedule) return;
  }
}

std::unique_ptr<Mechanism> NoiseSchedule::make_mechanism() const {
  if (!options_.noise_strategy)
    return std::make_unique<GaussianMechanism>(noise_at(0), options_.noise);
  return std::make_unique<CorrelatedMechanism>(
      NoisePlan{.strategy = *options_.noise_strategy,
                .noise_multiplier = initial_,
                .sampling = sampler_.sampling(),
                .min_separation = sampler_.min_separation()});
}

}  // namespace sotto
