#include "samples/privacy_budget/commands.h"

#include <algorithm>

#include <fmt/format.h>

#include "dp/numerics/directed_rounding.h"

namespace sotto::budget {

Answer answer(const Options& options, Progress& progress) {
  switch (options.command) {
    case Command::spent: return answer_spent(options, progress);
    case Command::compare: return answer_compare(options, progress);
    case Command::inspect: return answer_inspect(options);
    default: return answer_target(options, progress);
  }
}

std::string description(const Event& event) {
  std::string text = sotto::name(event.sampling);
  if (in_epochs(event.sampling)) text += fmt::format(", passes of {}", event.batches);
  if (has_rate(event.sampling)) text += fmt::format(", rate {}", shown(event.sampling_rate));
  if (event.truncation_probability > 0)
    text += fmt::format(", cut {}", delta_text(event.truncation_probability));
  return text;
}

std::string description(NeighboringRelation relation) {
  return relation == NeighboringRelation::add_or_remove_one
             ? "add_or_remove_one (a record is there or counts for nothing)"
             : "replace_one (a record is exchanged for another)";
}

void tell_method(Method method, NeighboringRelation relation, const Options& options,
                 Answer& answer) {
  const bool second = !options.accountant && method != Method::pld;
  answer.facts.emplace_back("neighbours", description(relation));
  answer.facts.emplace_back(
      "accountant",
      fmt::format("{}{}", name(method), second ? " (pld has no proof for this sampling)" : ""));
  answer.json["relation"] = name(relation);
  answer.json["accountant"] = name(method);
}

void put_bounds(const std::string& what, const Bounds& bounds, nlohmann::ordered_json& json) {
  json[what] = json_number(bounds.upper);
  if (bounds.lower) json[what + "_at_least"] = json_number(*bounds.lower);
}

void note_delta(double delta, const std::optional<std::int64_t>& population, Answer& answer) {
  if (!population || delta * static_cast<double>(*population) < 1) return;
  answer.notes.push_back(
      fmt::format("delta {} is not below 1/{}: it allows to publish a record outright",
                  delta_text(delta), *population));
}

History first_steps(const std::vector<Phase>& phases, std::int64_t steps, double noise) {
  History history;
  for (Phase phase : phases) {
    phase.steps = std::min(phase.steps, steps);
    phase.event.noise_multiplier *= noise;
    steps -= phase.steps;
    if (phase.steps == 0) continue;
    for (const auto& releases : releases_of(phase)) history.push_back(releases);
  }
  return history;
}

}  // namespace sotto::budget
