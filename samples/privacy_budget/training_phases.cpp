#include "samples/privacy_budget/training_phases.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/join.h"
#include "dp/numerics/binomial_tail.h"
#include "samples/cli/program.h"

namespace sotto::budget {

namespace {

// Larger counts are mistakes, and their sums could overflow.
constexpr std::int64_t max = std::int64_t{1} << 40;
// A bound on the relative excess of a quotient and a product of rounded numbers; at `most` it is
// less than a hundredth.
constexpr double rounding = 4 * std::numeric_limits<double>::epsilon();

constexpr std::array<std::pair<NeighboringRelation, const char*>, 2> relations = {
    {{NeighboringRelation::add_or_remove_one, "add_or_remove_one"},
     {NeighboringRelation::replace_one, "replace_one"}}};

void check_positive(const char* option, std::optional<double> value) {
  check(!value || (std::isfinite(*value) && *value > 0), "{}: {} is not a positive number", option,
        value.value_or(0));
}

void check_count(const char* option, std::optional<std::int64_t> value) {
  check(!value || (*value >= 1 && *value <= max), "{}: {} is not from 1 to {}", option,
        value.value_or(0), max);
}

void check_numbers(const PhaseOptions& o) {
  if (o.noise_multiplier) samples::check_noise_multiplier(*o.noise_multiplier);
  check_positive("--batch-size", o.batch);
  check_positive("--epochs", o.epochs);
  check_count("--dataset-size", o.population);
  check_count("--batches-per-epoch", o.batches);
  check_count("--steps", o.steps);
  check_count("--max-batch-size", o.max_batch_size);
  check(!o.sampling_rate || (*o.sampling_rate > 0 && *o.sampling_rate <= 1),
        "--sampling-rate: {} is not above 0 and at most 1", o.sampling_rate.value_or(0));
  check(!o.truncation_probability ||
            (*o.truncation_probability > 0 && *o.truncation_probability <= 1),
        "--truncation-probability: {} is not above 0 and at most 1 (--max-batch-size and "
        "--dataset-size compute it)",
        o.truncation_probability.value_or(0));
  check(!o.batch || !o.population || *o.batch <= static_cast<double>(*o.population),
        "--batch-size: {} of a --dataset-size of {}", o.batch.value_or(0),
        o.population.value_or(0));
}

void check_together(const PhaseOptions& o, Sampling sampling) {
  const char* const kind = sotto::name(sampling);
  check(!o.batch || !o.sampling_rate, "--batch-size and --sampling-rate do not go together");
  check(!o.steps || !o.epochs, "--steps and --epochs do not go together");
  check(!o.sampling_rate || has_rate(sampling), "--sampling-rate: {} batches have none", kind);
  check(!o.batch || has_rate(sampling) || in_epochs(sampling),
        "--batch-size: {} batches are all records", kind);
  check(!o.batches || in_epochs(sampling), "--batches-per-epoch: {} batches do not come in passes",
        kind);
  const bool truncated = sampling == Sampling::truncated_poisson;
  check(!o.truncation_probability || truncated,
        "--truncation-probability: {} batches are not truncated", kind);
  check(!o.max_batch_size || truncated, "--max-batch-size: {} batches are not truncated", kind);
  check(!o.max_batch_size || !o.truncation_probability,
        "--max-batch-size and --truncation-probability do not go together");
  check(!o.batch || !whole_batches(sampling) || *o.batch == std::floor(*o.batch),
        "--batch-size: {} is not a whole number of records, as {} batches have",
        o.batch.value_or(0), kind);
  check(!o.batch || o.population, "--batch-size: needs --dataset-size (or give --sampling-rate)");
}

double rate_of(const PhaseOptions& o, Sampling sampling) {
  if (o.sampling_rate) return *o.sampling_rate;
  check(o.batch && o.population,
        "--sampling-rate: is missing (or give --dataset-size and --batch-size)");
  const double records = static_cast<double>(*o.population);
  if (sampling != Sampling::cyclic_poisson) return *o.batch / records;
  const double rate = *o.batch * static_cast<double>(o.batches.value()) / records;
  check(rate <= 1,
        "--batches-per-epoch: {} groups of {} records have fewer than a --batch-size of {}",
        *o.batches, *o.population, *o.batch);
  return rate;
}

std::int64_t batches_of(const PhaseOptions& o, Sampling sampling) {
  if (sampling == Sampling::cyclic_poisson || sampling == Sampling::planned) {
    check(o.batches.has_value(), "--batches-per-epoch: is missing: {} needs the {}",
          sotto::name(sampling),
          sampling == Sampling::planned ? "steps of the plan" : "number of groups");
    check(!o.batch || sampling != Sampling::planned,
          "--batch-size: planned batches need --batches-per-epoch");
    return *o.batches;
  }
  check(!o.batches || !o.batch,
        "--batches-per-epoch and --batch-size do not go together for {} batches",
        sotto::name(sampling));
  if (o.batches) return *o.batches;
  check(o.batch && o.population,
        "--batches-per-epoch: is missing (or give --dataset-size and --batch-size)");
  return batches_of_epoch(*o.population, *o.batch);
}

// A rate of 0 means that it is unknown.
double cut_of(const PhaseOptions& o, double rate) {
  if (o.truncation_probability) return *o.truncation_probability;
  check(o.max_batch_size.has_value(),
        "--max-batch-size: is missing (or give --truncation-probability)");
  check(o.population.has_value(), "--max-batch-size: needs --dataset-size");
  check(rate > 0,
        "--max-batch-size: says nothing while the sampling rate is not known; give "
        "--truncation-probability");
  return binomial_tail(*o.population + 1, rate, *o.max_batch_size);
}

double steps_per_epoch(const Event& event) {
  if (event.sampling == Sampling::planned) return 0;
  return static_cast<double>(event.batches) / event.sampling_rate;
}

std::int64_t steps_of(const PhaseOptions& o, double per_epoch) {
  if (o.steps) return *o.steps;
  check(o.epochs.has_value(), "--steps: is missing (or give --epochs)");
  check(per_epoch > 0, "--epochs: has no meaning here (give --steps)");
  const double steps = std::ceil(*o.epochs * per_epoch * (1 - rounding));
  check(steps <= static_cast<double>(max), "--epochs: {} are {} steps, more than {}", *o.epochs,
        steps, max);
  return static_cast<std::int64_t>(steps);
}

void check_batch_to_find(const PhaseOptions& o, Sampling sampling) {
  check(sampling == Sampling::partition || sampling == Sampling::balls_and_bins,
        "--sampling: {} batches have no size to find", sotto::name(sampling));
  check(!o.batches, "--batches-per-epoch: is what the batch decides, for {} batches",
        sotto::name(sampling));
  check(o.population.has_value(), "--dataset-size: is missing: {} needs it", sotto::name(sampling));
}

template <class Number>
void read_number(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, number);
  check(fault != std::errc::result_out_of_range, "{} is too large or too small", text);
  check(fault == std::errc() && rest == end, "{} is not a {}number", text,
        std::is_integral_v<Number> ? "whole " : "");
}
void read_number(const std::string& text, std::string& word) { word = text; }

using Items = std::vector<std::pair<std::string, std::string>>;

// Parses NAME=VALUE pairs; each name may occur once.
Items items_of(const std::string& text) {
  Items items;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const std::size_t equals = item.find('=');
    check(equals != std::string::npos, "'{}' is not NAME=VALUE", item);
    const std::string name = item.substr(0, equals);
    for (const auto& other : items) check(other.first != name, "{} is given twice", name);
    items.emplace_back(name, item.substr(equals + 1));
    at = end + 1;
  }
  return items;
}

// A phase's option replaces the alternative that was given for all phases.
void drop_other(const std::string& name, PhaseOptions& o) {
  if (name == "batch-size") o.sampling_rate.reset();
  if (name == "sampling-rate") o.batch.reset();
  if (name == "max-batch-size") o.truncation_probability.reset();
  if (name == "truncation-probability") o.max_batch_size.reset();
  if (name == "steps") o.epochs.reset();
  if (name == "epochs") o.steps.reset();
}

void set_option(const std::string& name, const std::string& value, PhaseOptions& o) {
  bool known = false;
  visit_phase_options(o, [&](const char* option, auto& member, const char*, const char*) {
    if (name != option) return;
    known = true;
    read_number(value, member.emplace());
  });
  check(known, "a phase has no {}", name);
}

std::set<std::string> names_of(const PhaseOptions& o) {
  std::set<std::string> names;
  visit_phase_options(o, [&](const char* name, const auto& member, const char*, const char*) {
    if (member) names.insert(name);
  });
  return names;
}

}  // namespace

std::int64_t batches_of_epoch(std::int64_t population, double batch) {
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(population) / batch * (1 - rounding)));
}

bool whole_batches(Sampling sampling) {
  return sampling == Sampling::fixed_size || sampling == Sampling::partition;
}

std::vector<std::string> relation_names() {
  return {name(NeighboringRelation::add_or_remove_one), name(NeighboringRelation::replace_one)};
}

std::string name(NeighboringRelation relation) {
  return std::find_if(relations.begin(), relations.end(),
                      [&](const auto& pair) { return pair.first == relation; })
      ->second;
}

NeighboringRelation parse_relation(const std::string& name) {
  for (const auto& [relation, known] : relations) {
    if (name == known) return relation;
  }
  fail(fmt::format("--relation: {} is not one of {}", name, join(relation_names(), ", ")));
}

PhaseOptions parse_phase(const std::string& text, PhaseOptions base) {
  try {
    const Items items = items_of(text);
    for (const auto& [name, value] : items) drop_other(name, base);
    for (const auto& [name, value] : items) set_option(name, value, base);
    return base;
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("--phase {}: {}", text, error.what()));
  }
}

std::vector<PhaseOptions> parse_phases(const std::vector<std::string>& texts,
                                       const PhaseOptions& base) {
  std::vector<PhaseOptions> phases;
  std::set<std::string> unused = names_of(base);
  for (const std::string& text : texts) {
    phases.push_back(parse_phase(text, base));
    const std::set<std::string> own = names_of(parse_phase(text, {}));
    for (const std::string& name : names_of(phases.back())) {
      if (!own.contains(name)) unused.erase(name);
    }
  }
  for (const std::string& name : unused)
    fail(fmt::format("--{} has no effect: every --phase says otherwise", name));
  return phases;
}

Phase make_phase(const PhaseOptions& o, Unknown unknown) {
  const Sampling sampling =
      parse_sampling("--sampling", o.sampling.value_or(sotto::name(Sampling::poisson)));
  check_numbers(o);
  check_together(o, sampling);
  Phase phase{.event = {.sampling = sampling}, .population = o.population};
  if (unknown != Unknown::noise) {
    check(o.noise_multiplier.has_value(), "--noise-multiplier: is missing");
    phase.event.noise_multiplier = *o.noise_multiplier;
  }
  const bool to_find = unknown == Unknown::batch && !has_rate(sampling);
  if (to_find) check_batch_to_find(o, sampling);
  if (in_epochs(sampling) && !to_find) phase.event.batches = batches_of(o, sampling);
  if (unknown != Unknown::batch) {
    if (has_rate(sampling)) phase.event.sampling_rate = rate_of(o, sampling);
    phase.steps_per_epoch = steps_per_epoch(phase.event);
  }
  if (sampling == Sampling::truncated_poisson) {
    phase.event.truncation_probability =
        cut_of(o, unknown == Unknown::batch ? 0 : phase.event.sampling_rate);
  }
  if (unknown != Unknown::steps) phase.steps = steps_of(o, phase.steps_per_epoch);
  return phase;
}

}  // namespace sotto::budget
