// The engine's privacy statement: what its parts did, in words.

#include "sotto/dp/engine.h"

#include "sotto/core/text.h"

namespace sotto {

namespace {

std::string sampling_words(const Sampler& sampler) {
  const Event& event = sampler.event();
  const std::string mean =
      fmt::format("; {:.6g} of {} units on average", sampler.expected_size(), sampler.population());
  switch (event.sampling) {
    case Sampling::full_batch: return fmt::format("all {} units", sampler.population());
    case Sampling::poisson:
      return fmt::format("Poisson: every unit with probability {:.6g}, independently{}",
                         event.sampling_rate, mean);
    case Sampling::truncated_poisson:
      return fmt::format(
          "truncated Poisson: every unit with probability {:.6g}, independently, "
          "and fewer where that is too many (probability below {:.3g}){}",
          event.sampling_rate, event.cut, mean);
    case Sampling::fixed_size:
      return fmt::format("a subset of fixed size, without replacement{}", mean);
    case Sampling::partition:
      return fmt::format("passes in a random order, cut into {} batches{}", event.batches, mean);
    case Sampling::balls_and_bins:
      return fmt::format("in a pass of {} batches every unit is in a random one{}", event.batches,
                         mean);
    case Sampling::cyclic_poisson:
      return fmt::format("{} groups in turn, of which every unit with probability {:.6g}{}",
                         event.batches, event.sampling_rate, mean);
    case Sampling::planned:
      return fmt::format("a public plan of {} steps, a unit taking part every {} steps{}",
                         event.batches, sampler.separation(), mean);
  }
  return "";
}

std::string clipping_words(const Clipper& clipper, const EngineOptions& options) {
  std::vector<double> bounds;
  for (const ClipGroup& group : clipper.groups()) bounds.push_back(group.bound);
  const bool several = bounds.size() > 1;
  std::string text =
      fmt::format("each unit's gradient {} by the rule \"{}\" to {}{}",
                  several ? fmt::format("in {} groups", bounds.size()) : "as a whole",
                  name(options.clipping.rule.kind), several ? "bounds " : "",
                  joined(bounds, ", ", [](double bound) { return fmt::format("{:.6g}", bound); }));
  if (options.adaptive_clipping)
    text += fmt::format(", which follow the quantile {:g} of the norms privately",
                        options.adaptive_clipping->quantile);
  if (options.bound_schedule) text += ", by a schedule";
  return text + fmt::format("; sensitivity {:.6g}", clipper.sensitivity());
}

std::string composition_words(const History& history) {
  if (history.adaptive)
    return "adaptive: settings were chosen when earlier releases could be looked at; epsilon is "
           "that of a Renyi odometer, for any such choice and any end";
  if (history.within_plans)
    return "planned: settings and numbers of steps at most were in the ledger before the first "
           "release; should the end have been chosen by looking at releases, epsilon is that of "
           "all that was planned";
  return "planned: releases of one kind; epsilon holds where their number was not chosen by "
         "looking at them, as no largest number was in the ledger before the first";
}

}  // namespace

PrivacyStatement Engine::report() const {
  return {.epsilon = epsilon(),
          .delta = delta(),
          .releases = ledger_.releases(),
          .unit = ledger_.header().unit,
          .relation = relation_text(ledger_.header().relation),
          .sampling = sampling_words(*sampler_),
          .clipping = clipping_words(clipper_, options_),
          .mechanism =
              mechanism_->description() + (options_.noise_schedule ? ", moved by a schedule" : ""),
          .accountant = budget_.accountant(),
          .not_private = ledger_.reasons(),
          .covered = {"The weights after every step, their moving average, and the optimizer's "
                      "state",
                      "Whatever is computed from these and from other data, predictions included"},
          .not_covered = {"The choice of settings, when it was made by looking at results on this "
                          "data",
                          "Statistics of the clipper: norms, factors and losses of single units",
                          "Time, memory and other things that can be observed while the program "
                          "runs"},
          .notes = {},
          .composition = composition_words(ledger_.history()),
          .epsilon_planned = budget_.epsilon_planned()};
}

}  // namespace sotto
