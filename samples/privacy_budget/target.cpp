// Answers for a target epsilon: the noise, the steps or the batch that meets it.
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/privacy_budget/commands.h"
#include "samples/report/charts.h"

namespace sotto::budget {

namespace {

constexpr int noise_digits = 6;  // digits to print; noise is worth more digits than epsilon

Unknown unknown_of(Command command) {
  if (command == Command::noise) return Unknown::noise;
  return command == Command::steps ? Unknown::steps : Unknown::batch;
}

// Replaces the unknown by a valid placeholder, so that accountants can be asked about the phase.
Phase with_placeholder(Phase phase, Unknown unknown) {
  if (unknown == Unknown::noise) phase.event.noise_multiplier = 1;
  if (unknown == Unknown::steps) phase.steps = 1;
  if (unknown == Unknown::batch && has_rate(phase.event.sampling)) phase.event.sampling_rate = 0.5;
  return phase;
}

// The number of records in the largest batch; 0 if the population is unknown. It is an integer:
// fixed-size batches must be, and users specify others as integers.
std::int64_t find_batch(Method method, NeighboringRelation relation, const Target& target,
                        Phase& phase) {
  const double records = static_cast<double>(phase.population.value_or(0));
  std::int64_t batch = 0;
  if (has_rate(phase.event.sampling)) {
    const double groups = static_cast<double>(phase.event.batches);
    phase.event.sampling_rate = max_rate(method, relation, phase, target);
    if (!phase.population) return 0;
    batch = static_cast<std::int64_t>(phase.event.sampling_rate * records / groups);
    phase.event.sampling_rate = static_cast<double>(batch) * groups / records;
  } else {
    batch = max_batch_size(method, relation, phase, target);
    if (batch >= 1) {  // batches of an epoch are as equal as possible
      phase.event.batches = batches_of_epoch(*phase.population, static_cast<double>(batch));
      batch = batches_of_epoch(*phase.population, static_cast<double>(phase.event.batches));
    }
  }
  check(batch >= 1, "--epsilon: not even batches of one record meet the target");
  return batch;
}

// Fills in the unknown; returns the result of find_batch if the batch was unknown.
std::int64_t solve(Method method, NeighboringRelation relation, Unknown unknown,
                   const Target& target, Phase& phase) {
  try {
    if (unknown == Unknown::batch) return find_batch(method, relation, target, phase);
    if (unknown == Unknown::noise) {
      phase.event.noise_multiplier = min_noise(method, relation, phase, target);
    } else {
      phase.steps = max_steps(method, relation, phase, target);
    }
    return 0;
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    fail(text.starts_with("--") ? text : "--epsilon: " + text);
  }
}

void tell_steps(const Phase& phase, Answer& answer) {
  answer.facts.emplace_back("steps", grouped(phase.steps));
  answer.json["steps"] = phase.steps;
  if (phase.steps_per_epoch <= 0) return;
  const double epochs = static_cast<double>(phase.steps) / phase.steps_per_epoch;
  answer.facts.back().second += fmt::format(" ({} epochs)", rounded_down(epochs));
  answer.json["epochs"] = epochs;
}

void tell_batches(Unknown unknown, std::int64_t batch, const Phase& phase, Answer& answer) {
  const Event& event = phase.event;
  answer.facts.emplace_back("sampling", description(event));
  answer.json["event"] = nlohmann::ordered_json::parse(to_json(event));
  if (unknown != Unknown::batch) return;
  if (has_rate(event.sampling)) {
    answer.facts.emplace_back("sampling rate", rounded_down(event.sampling_rate, noise_digits));
    answer.json["sampling_rate"] = event.sampling_rate;
  }
  if (batch == 0) return;
  answer.facts.emplace_back("batch", grouped(batch));
  answer.json["batch"] = batch;
}

void tell_result(const Target& target, const Bounds& bounds, Answer& answer) {
  Table table{.head = {"delta", "epsilon wanted", "epsilon at most", "and at least"}};
  table.rows.push_back({delta_text(target.delta), shown(target.epsilon), epsilon_text(bounds.upper),
                        bounds.lower ? rounded_down(*bounds.lower) : "–"});
  answer.tables.push_back(std::move(table));
  answer.json["delta"] = target.delta;
  answer.json["target_epsilon"] = target.epsilon;
  put_bounds("epsilon", bounds, answer.json);
}

const char* title_of(Unknown unknown) {
  if (unknown == Unknown::noise) return "Noise for a target";
  return unknown == Unknown::steps ? "Steps within a target" : "Batch within a target";
}

}  // namespace

Answer answer_target(const Options& options, Progress& progress) {
  const Unknown unknown = unknown_of(options.command);
  const NeighboringRelation relation =
      options.relation.value_or(NeighboringRelation::add_or_remove_one);
  const Target target{options.epsilons.front(), options.deltas.front()};
  Phase phase = with_placeholder(make_phase(options.phases.front(), unknown), unknown);
  const Method method = choose_method(options.accountant, relation, releases_of(phase));
  const std::string cut = truncation_refusal(phase, target);
  check(cut.empty(), "{}: {}",
        options.phases.front().truncation_probability ? "--truncation-probability"
                                                      : "--max-batch-size",
        cut);
  const std::int64_t batch = solve(method, relation, unknown, target, phase);
  Answer answer{.title = title_of(unknown)};
  answer.json["command"] = unknown == Unknown::noise   ? "noise"
                           : unknown == Unknown::steps ? "steps"
                                                       : "batch";
  tell_method(method, relation, options, answer);
  answer.facts.emplace_back("noise multiplier",
                            rounded_up(phase.event.noise_multiplier, noise_digits));
  answer.json["noise_multiplier"] = phase.event.noise_multiplier;
  tell_batches(unknown, batch, phase, answer);
  tell_steps(phase, answer);
  const History history = first_steps({phase}, phase.steps, 1);
  tell_result(target, epsilon(method, relation, history, target.delta), answer);
  note_delta(target.delta, phase.population, answer);
  if (phase.steps == 0) answer.notes.emplace_back("a single step is more than the target allows");
  if (options.html.empty() || phase.steps == 0) return answer;
  answer.charts = privacy_curves(
      {.series = {{.name = name(method),
                   .method = method,
                   .relation = relation,
                   .history = [&](std::int64_t steps,
                                  double noise) { return first_steps({phase}, steps, noise); }}},
       .steps = phase.steps,
       .noise = phase.event.noise_multiplier,
       .relative_noise = false,
       .delta = target.delta},
      progress);
  return answer;
}

}  // namespace sotto::budget
