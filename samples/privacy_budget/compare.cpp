// Compares accountants and samplings for batches of one size.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/error.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/privacy_budget/commands.h"
#include "samples/report/charts.h"

namespace sotto::budget {

namespace {

constexpr std::array compared = {Sampling::poisson,        Sampling::truncated_poisson,
                                 Sampling::fixed_size,     Sampling::partition,
                                 Sampling::balls_and_bins, Sampling::cyclic_poisson,
                                 Sampling::full_batch};
// For truncated Poisson batches: the probability that any batch of the training is truncated, as a
// share of delta.
constexpr double cut_share = 1e-3;
constexpr std::int64_t usual_groups = 4;

// The training with batches sampled in another way.
Phase drawn(Sampling sampling, const PhaseOptions& given, const Phase& poisson,
            const Options& options) {
  PhaseOptions o{.noise_multiplier = given.noise_multiplier,
                 .population = given.population,
                 .steps = poisson.steps,
                 .sampling = sotto::name(sampling)};
  const double rate = poisson.event.sampling_rate;
  const auto max_groups = static_cast<std::int64_t>(1 / rate);
  const std::int64_t groups = options.groups.value_or(std::min(usual_groups, max_groups));
  switch (sampling) {
    case Sampling::full_batch: break;
    case Sampling::partition:
    case Sampling::balls_and_bins: o.batches = batches_of_epoch(1, rate); break;
    case Sampling::cyclic_poisson:
      check(groups <= max_groups, "--groups: {} groups are smaller than a batch", groups);
      o.batches = groups;
      o.sampling_rate = std::min(1.0, rate * static_cast<double>(groups));
      break;
    case Sampling::truncated_poisson:
      o.truncation_probability =
          cut_share * options.deltas.front() / static_cast<double>(poisson.steps);
      o.sampling_rate = rate;
      break;
    default: o.sampling_rate = rate;
  }
  return make_phase(o);
}

struct Cell {
  Method method;
  std::string refusal;  // empty: there are bounds
  Bounds bounds{};
};

std::string text_of(const Cell& cell) {
  if (!cell.refusal.empty()) return cell.method == Method::gdp ? "–" : "no proof";
  return cell.method == Method::gdp ? fmt::format("{:.4g}", cell.bounds.upper)
                                    : epsilon_text(cell.bounds.upper);
}

nlohmann::ordered_json json_of(const Cell& cell) {
  nlohmann::ordered_json json = {{"accountant", name(cell.method)},
                                 {"guarantee", cell.refusal.empty() && cell.method != Method::gdp}};
  if (cell.refusal.empty()) {
    put_bounds("epsilon", cell.bounds, json);
  } else {
    json["reason"] = cell.refusal;
  }
  return json;
}

class Comparison {
 public:
  Comparison(const Options& options, Progress& progress)
      : options_(options),
        progress_(progress),
        given_(options.phases.front()),
        poisson_(make_phase(given_)),
        delta_(options.deltas.front()) {}

  Answer answer() {
    tell_training();
    const std::vector<NeighboringRelation> relations =
        options_.relation
            ? std::vector{*options_.relation}
            : std::vector{NeighboringRelation::add_or_remove_one, NeighboringRelation::replace_one};
    progress_.begin("epsilon",
                    static_cast<int>(compared.size() * std::size(methods) * relations.size()));
    for (const NeighboringRelation relation : relations) compare(relation);
    answer_.notes.emplace_back(
        "epsilon at most; gdp is the limit of many steps and guarantees nothing");
    note_delta(delta_, given_.population, answer_);
    if (!options_.html.empty()) {
      for (const NeighboringRelation relation : relations) add_curves(relation);
    }
    return std::move(answer_);
  }

 private:
  void tell_training();
  void compare(NeighboringRelation relation);
  void add_curves(NeighboringRelation relation);
  Cell cell(Method method, NeighboringRelation relation, const Phase& phase) const;

  const Options& options_;
  Progress& progress_;
  PhaseOptions given_;
  Phase poisson_;
  double delta_;
  Answer answer_{.title = "Accountants and samplings compared"};
};

void Comparison::tell_training() {
  answer_.json["command"] = "compare";
  answer_.json["delta"] = delta_;
  answer_.json["noise_multiplier"] = poisson_.event.noise_multiplier;
  answer_.json["sampling_rate"] = poisson_.event.sampling_rate;
  answer_.json["steps"] = poisson_.steps;
  answer_.json["rows"] = nlohmann::ordered_json::array();
  answer_.facts = {{"delta", delta_text(delta_)},
                   {"noise multiplier", noise_text(poisson_.event.noise_multiplier)},
                   {"steps", grouped(poisson_.steps)}};
}

Cell Comparison::cell(Method method, NeighboringRelation relation, const Phase& phase) const {
  const History history = releases_of(phase);
  Cell cell{.method = method, .refusal = refusal(method, relation, history)};
  if (cell.refusal.empty()) cell.bounds = epsilon(method, relation, history, delta_);
  return cell;
}

void Comparison::compare(NeighboringRelation relation) {
  Table table{.caption = description(relation),
              .named = true,
              .head = {"sampling", "pld", "prv", "rdp", "gdp (no guarantee)"}};
  for (const Sampling sampling : compared) {
    const Phase phase = drawn(sampling, given_, poisson_, options_);
    std::vector<std::string> row = {description(phase.event)};
    auto json =
        nlohmann::ordered_json{{"relation", name(relation)},
                               {"event", nlohmann::ordered_json::parse(to_json(phase.event))}};
    for (const Method method : methods) {
      const Cell found = cell(method, relation, phase);
      row.push_back(text_of(found));
      json["accountants"].push_back(json_of(found));
      progress_.advance();
    }
    table.rows.push_back(std::move(row));
    answer_.json["rows"].push_back(std::move(json));
  }
  answer_.tables.push_back(std::move(table));
}

void Comparison::add_curves(NeighboringRelation relation) {
  CurveQuestion question{.steps = poisson_.steps,
                         .noise = poisson_.event.noise_multiplier,
                         .relative_noise = false,
                         .delta = delta_};
  int colour = 0;
  for (const Sampling sampling : compared) {
    const Phase phase = drawn(sampling, given_, poisson_, options_);
    for (const Method method : methods) {
      if (!refusal(method, relation, releases_of(phase)).empty()) continue;
      question.series.push_back(
          {.name = fmt::format("{}, {}", sotto::name(sampling),
                               method == Method::gdp ? "gdp (no guarantee)" : name(method)),
           .method = method,
           .relation = relation,
           .history = [phase](std::int64_t steps,
                              double noise) { return first_steps({phase}, steps, noise); },
           .colour = colour});
    }
    ++colour;
  }
  for (CurveChart& chart : privacy_curves(question, progress_)) {
    chart.name += fmt::format(", {}", name(relation));
    answer_.charts.push_back(std::move(chart));
  }
}

}  // namespace

Answer answer_compare(const Options& options, Progress& progress) {
  return Comparison(options, progress).answer();
}

}  // namespace sotto::budget
