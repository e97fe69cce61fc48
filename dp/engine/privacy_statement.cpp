#include "dp/engine/privacy_statement.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "core/join.h"
#include "dp/accounting/budget.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/mechanism.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"

namespace sotto {

namespace {

std::string list(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("{}:\n", title);
  for (const std::string& line : lines) text += fmt::format("  - {}\n", line);
  return text;
}

std::string sampling_words(const Sampler& sampler) {
  const Event& event = sampler.event();
  const std::string mean = fmt::format("; {:.6g} of {} units on average",
                                       sampler.expected_batch_size(), sampler.population());
  switch (event.sampling) {
    case Sampling::full_batch: return fmt::format("all {} units", sampler.population());
    case Sampling::poisson:
      return fmt::format("Poisson: every unit with probability {:.6g}, independently{}",
                         event.sampling_rate, mean);
    case Sampling::truncated_poisson:
      return fmt::format(
          "truncated Poisson: every unit with probability {:.6g}, independently, "
          "and fewer where that is too many (probability at most {}){}",
          event.sampling_rate, rounded_up(event.truncation_probability, 3), mean);
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
                         event.batches, sampler.min_separation(), mean);
  }
  return "";
}

std::string clipping_words(const Clipper& clipper, const EngineOptions& options) {
  const std::vector<double> bounds = clipper.bounds();
  const bool several = bounds.size() > 1;
  std::string text =
      fmt::format("each unit's gradient {} by the rule \"{}\" to {}{}",
                  several ? fmt::format("in {} groups", bounds.size()) : "as a whole",
                  name(options.clipping.rule.kind), several ? "bounds " : "",
                  join(bounds, ", ", [](double bound) { return fmt::format("{:.6g}", bound); }));
  if (options.adaptive_clipping)
    text += fmt::format(", which follow the quantile {:g} of the norms privately",
                        options.adaptive_clipping->quantile);
  if (options.bound_schedule) text += ", by a schedule";
  return text + fmt::format("; sensitivity {:.6g}", clipper.sensitivity());
}

// The expected batch size, by which sums are divided, and the printed sizes depend on the number of
// units. That number is public and equal for neighbouring data sets.
std::string relation_words(NeighboringRelation relation) {
  return relation == NeighboringRelation::add_or_remove_one
             ? "add or remove one, as zero-out: one unit has its data or counts for nothing, and "
               "the number of units is public"
             : "replace one: one unit has its data or another's, and the number of units is public";
}

std::vector<std::string> not_covered() {
  return {
      "The choice of settings, if you made it by looking at results on this data",
      "Exact numbers: sums of gradients and losses before noise, norms, factors and losses of "
      "units, fractions clipped, and how many units were drawn, and which",
      "The number of units: it is public, as is the seed of initial weights, dropout and "
      "augmentation",
      "Time, memory and other things that can be observed while the program runs",
      "What the loss computes from the batch outside of the tape, and whether it throws",
  };
}

std::vector<std::string> assumed(const EngineOptions& options) {
  std::vector<std::string> lines = {
      "Nobody reads the program's memory, or edits the state in a checkpoint",
      "Nobody can tell the generator of the noise, ChaCha20, from random words",
      "Samples of several lengths are padded to a public one, and libraries on GPUs add up a row "
      "in the same order wherever it stands",
  };
  if (options.noise == GaussianNoise::floating_point)
    lines.emplace_back("The last digits of noise that is drawn in floating point tell nothing");
  return lines;
}

std::string order_words(const History& history) {
  if (history.adaptive)
    return "adaptive: settings may have been chosen by looking at earlier releases. Epsilon, a "
           "Renyi odometer's, holds for every such choice, and for every end";
  if (history.whole_plan)
    return "planned: you may have chosen by looking at releases which part of the plan to run. So "
           "epsilon is that of the whole plan";
  if (history.within_plans)
    return "planned: settings and the largest number of steps were in the ledger before the first "
           "release. If you chose the last step by looking at results, quote the epsilon of all "
           "that was planned";
  return "planned: all releases are of one kind. Their largest number was not in the ledger before "
         "the first, so epsilon holds only if you did not choose the last step by looking at "
         "results";
}

std::string composition_words(const History& history,
                              const std::optional<PrivateSelection>& selection_of_run) {
  if (selection_of_run)
    return fmt::format(
        "one run of a private selection, the best of {:.4g} runs in the mean; epsilon is that of "
        "the selection",
        selection_of_run->runs.mean());
  std::string words = order_words(history);
  if (history.selection)
    words += fmt::format(
        "; with a private selection, the best of {:.4g} runs in the mean, of which one is composed",
        history.selection->runs.mean());
  return words;
}

}  // namespace

PrivacyStatement privacy_statement(const StatementSources& from) {
  return {.epsilon = from.budget.epsilon(),
          .delta = from.budget.delta(),
          .releases = from.ledger.releases(),
          .unit = from.ledger.header().unit,
          .relation = relation_words(from.ledger.header().relation),
          .sampling = sampling_words(from.sampler),
          .clipping = clipping_words(from.clipper, from.options),
          .mechanism = from.mechanism.description() +
                       (from.options.noise_schedule ? ", moved by a schedule" : ""),
          .accountant = from.budget.accountant(),
          .not_private = from.ledger.reasons(),
          .covered = {"The weights after every step, their moving average, and the optimizer's "
                      "state",
                      "Whatever is computed from these and from other data, predictions included"},
          .not_covered = not_covered(),
          .notes = {},
          .composition = composition_words(from.budget.history(), from.ledger.selection_of_run()),
          .epsilon_planned = from.budget.epsilon_planned(),
          .assumed = assumed(from.options)};
}

std::string to_text(const PrivacyStatement& s) {
  std::string text = s.not_private.empty()
                         ? fmt::format("(epsilon, delta) = ({}, {}) differential privacy\n",
                                       epsilon_text(s.epsilon), delta_text(s.delta))
                         : "NO PRIVACY IS GUARANTEED\n" + list("because of", s.not_private);
  const std::pair<const char*, const std::string&> rows[] = {
      {"unit of privacy", s.unit},    {"neighbouring data sets", s.relation},
      {"sampling", s.sampling},       {"clipping", s.clipping},
      {"mechanism", s.mechanism},     {"accountant", s.accountant},
      {"composition", s.composition},
  };
  for (const auto& [name, value] : rows) text += fmt::format("{}: {}\n", name, value);
  if (s.epsilon_planned)
    text += fmt::format("epsilon of all that was planned: {}\n", rounded_up(*s.epsilon_planned));
  text += fmt::format("releases accounted for: {}\n", s.releases);
  return text + list("covered", s.covered) + list("not covered", s.not_covered) +
         list("assumed", s.assumed) + list("notes", s.notes);
}

namespace {

// Calls visit(name, member) for each text, and for each list of texts.
template <class Statement, class Visit>
void visit_texts(Statement& s, const Visit& visit) {
  visit("unit", s.unit);
  visit("relation", s.relation);
  visit("sampling", s.sampling);
  visit("clipping", s.clipping);
  visit("mechanism", s.mechanism);
  visit("accountant", s.accountant);
  visit("composition", s.composition);
}
template <class Statement, class Visit>
void visit_lists(Statement& s, const Visit& visit) {
  visit("not_private", s.not_private);
  visit("covered", s.covered);
  visit("not_covered", s.not_covered);
  visit("assumed", s.assumed);
  visit("notes", s.notes);
}

}  // namespace

std::string to_json(const PrivacyStatement& s) {
  using Json = nlohmann::ordered_json;
  const auto number = [](std::optional<double> x) {
    return x && std::isfinite(*x) ? Json(*x) : Json(nullptr);
  };
  Json object = {{"epsilon", number(s.epsilon)}, {"delta", s.delta}, {"releases", s.releases}};
  const auto add = [&](const char* name, const auto& value) { object[name] = value; };
  visit_texts(s, add);
  object["epsilon_planned"] = number(s.epsilon_planned);
  visit_lists(s, add);
  return object.dump();
}

PrivacyStatement statement_from_json(const std::string& text) {
  try {
    constexpr std::size_t deepest = 2;
    check(!nested_deeper(text, deepest), "privacy statement: nested more than {} deep", deepest);
    const auto json = nlohmann::json::parse(text);
    const auto& epsilon = json.at("epsilon");
    PrivacyStatement s;
    s.epsilon = epsilon.is_null() ? std::numeric_limits<double>::infinity() : double{epsilon};
    s.delta = json.at("delta");
    s.releases = json.at("releases");
    const auto read = [&](const char* name, auto& value) { value = json.at(name); };
    visit_texts(s, read);
    visit_lists(s, read);
    if (!json.at("epsilon_planned").is_null()) s.epsilon_planned = json.at("epsilon_planned");
    return s;
  } catch (const nlohmann::json::exception& error) {
    fail(fmt::format("privacy statement: {}", excerpt(error.what())));
  }
}

}  // namespace sotto
