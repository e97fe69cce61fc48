// An engine's plan of releases, and how much noise its steps need for that.
#include "dp/accounting/adaptive_accountant.h"
#include "dp/engine/engine.h"

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

// Accountants that begin with all that the steps' noise must leave room for: planned means, and the
// ledger's releases, which whoever chose these settings could look at. A resumed run found its
// noise when it began.
NewAccountant accountant_of_rest(const EngineOptions& options, const Ledger& ledger) {
  const History history = ledger.history();
  const EventCounts released = ledger.resumed() ? EventCounts{} : history.events;
  const NeighboringRelation relation = ledger.header().relation;
  const NewAccountant start = released.empty() ? make_accountant(options.accountant, relation)
                                               : make_adaptive_accountant(relation, history.plans);
  EventCounts others = planned_means(options);
  for (const auto& [event, count] : released) add_releases(others, event, count);
  if (others.empty()) return start;
  return [start, others] {
    auto accountant = start();
    for (const auto& [event, count] : others) accountant->compose(event, count);
    return accountant;
  };
}

}  // namespace

double Engine::noise_for(const EngineOptions& options, const Sampler& sampler,
                         const Ledger& ledger) {
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
  const NewAccountant accountant = accountant_of_rest(options, ledger);
  const double others = accountant()->epsilon(options.delta);
  constexpr double min_left = 1e-3;  // of the target: less asks for absurd noise
  check(others < (1 - min_left) * target.epsilon,
        "Engine: nothing is left of the target epsilon {:.6g}: what the ledger holds and planned "
        "means cost {:.6g}, with releases to follow that could be chosen by looking at them",
        target.epsilon, others);
  return calibrate_noise_multiplier(target, accountant);
}

double Engine::noise_at(std::int64_t step) const {
  if (!options_.noise_schedule) return first_noise_multiplier_;
  return options_.noise_schedule->value(step, first_noise_multiplier_);
}

EventCounts Engine::planned(std::int64_t from, std::int64_t to) const {
  Event event = sampler_->event();
  event.noise_multiplier = first_noise_multiplier_;
  EventCounts releases;
  for (std::int64_t step = from; options_.noise_schedule && step < to; ++step) {
    event.noise_multiplier = noise_at(step);
    add_releases(releases, event, 1);
  }
  if (options_.noise_schedule) return releases;
  // Every batches-th draw begins a pass, and pays for it.
  const std::int64_t before = (event.batches - sampler_->index_in_epoch()) % event.batches;
  const std::int64_t draws = to - from;
  const std::int64_t passes =
      (std::max<std::int64_t>(0, draws - before) + event.batches - 1) / event.batches;
  event.paid = false;
  if (passes > 0) releases.emplace_back(event, passes);
  event.paid = true;
  if (draws > passes) releases.emplace_back(event, draws - passes);
  return releases;
}

void Engine::write_plan() {
  EventCounts all = planned(0, options_.steps);
  for (const auto& [event, count] : planned_means(options_)) add_releases(all, event, count);
  ledger_.plan(all);
}

}  // namespace sotto
