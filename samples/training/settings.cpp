#include "samples/training/settings.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/join.h"
#include "dp/engine/validation.h"
#include "samples/cli/program.h"

namespace sotto::samples {

namespace {

using nlohmann::json;

template <class T>
json value_to_json(const T& value) {
  return value;
}
template <class T>
json value_to_json(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
json value_to_json(const std::optional<Dtype>& value) { return memory::precision_text(value); }

template <class T>
void value_from_json(const json& from, T& value) {
  value = from.get<T>();
}
template <class T>
void value_from_json(const json& from, std::optional<T>& value) {
  value.reset();
  if (!from.is_null()) value = from.get<T>();
}
void value_from_json(const json& from, std::optional<Dtype>& value) {
  value = memory::parse_precision(from.get<std::string>());
}

// Larger counts are mistakes, and their sums could overflow.
constexpr std::int64_t max_samples = std::int64_t{1} << 40;
constexpr std::int64_t max_steps = std::int64_t{1} << 40;

bool positive(double value) { return std::isfinite(value) && value > 0; }

void validate_privacy(const Settings& s) {
  check(s.epsilon.has_value() != s.noise_multiplier.has_value(),
        "--epsilon, --noise-multiplier: give one of the two");
  if (s.epsilon) require(positive(*s.epsilon), "--epsilon", *s.epsilon, "a positive number");
  if (s.noise_multiplier) check_noise_multiplier(*s.noise_multiplier);
  require(s.delta > 0 && s.delta < 1, "--delta", s.delta, "between 0 and 1");
  const auto& quantile = s.adaptive_quantile;
  require(!quantile || (*quantile >= 0 && *quantile <= 1), "--adaptive-clip-quantile",
          quantile.value_or(0), "from 0 to 1");
  require((s.max_batch_size > 0) == (s.sampling == "truncated_poisson") && s.max_batch_size >= 0,
          "--max-batch-size", s.max_batch_size,
          "a number of samples with --sampling truncated_poisson, and absent with others");
  check_clip_bound(s.clip_bound);
}

void validate_optimizer(const Settings& s) {
  require(positive(s.learning_rate), "--lr", s.learning_rate, "a positive number");
  require(s.warmup >= 0, "--warmup", s.warmup, "a number of steps");
  require(s.momentum >= 0 && s.momentum < 1, "--momentum", s.momentum, "at least 0 and below 1");
  if (s.average) {
    require(*s.average > 0 && *s.average < 1, "--ema", *s.average, "between 0 and 1");
  }
  check(s.average || !s.average_warmup, "--ema-warmup: needs --ema");
}

}  // namespace

const char* held_out(const Settings& settings) {
  return settings.validation > 0 ? "validation" : "test";
}

json to_json(const Settings& settings) {
  json object = json::object();
  visit_settings(settings, [&](const char* name, const auto& value, OnResume) {
    object[name] = value_to_json(value);
  });
  return object;
}

Settings settings_from_json(const json& object) {
  Settings settings;
  visit_settings(settings, [&](const char* name, auto& value, OnResume) {
    value_from_json(object.at(name), value);
  });
  return settings;
}

std::string changes(const json& settings, const json& of) {
  std::vector<std::string> all;
  for (const auto& [name, value] : settings.items()) {
    const json other = of.value(name, json(nullptr));
    if (value == other) continue;
    all.push_back(fmt::format("{} is {} instead of {}", name,
                              value.is_null() ? "not set" : value.dump(),
                              other.is_null() ? "not set" : other.dump()));
  }
  return join(all, ", ");
}

void validate(const Settings& s) {
  require(s.train_size >= 1 && s.train_size <= max_samples, "--train-size", s.train_size,
          "a number of samples");
  require(s.test_size >= 1 && s.test_size <= max_samples, "--test-size", s.test_size,
          "a number of samples");
  for (const std::int64_t requested : {s.requested_train_size, s.requested_test_size})
    check(requested >= 0 && requested <= max_samples, "{} requested samples", requested);
  require(s.batch > 0 && s.batch <= static_cast<double>(s.train_size), "--batch-size", s.batch,
          fmt::format("above 0 and at most the {} training samples", s.train_size));
  require(s.validation >= 0 && s.validation < 1, "--validation", s.validation,
          "at least 0 and below 1");
  check_memory(s.memory);
  require(positive(s.epochs), "--epochs", s.epochs, "a positive number");
  if (s.steps) require(*s.steps >= 1, "--steps", *s.steps, "at least 1");
  require(s.steps || s.epochs * static_cast<double>(s.train_size) / s.batch <= max_steps,
          "--epochs", s.epochs, "a number of epochs that can be trained");
  require(planned_steps(s) <= max_steps, "--steps", planned_steps(s),
          "a number of steps that can be trained");
  validate_optimizer(s);
  if (s.privacy) {
    validate_privacy(s);
  } else {
    require(s.batch == std::floor(s.batch), "--batch-size", s.batch,
            "a whole number, which --no-privacy needs");
  }
}

namespace {

constexpr Sampling samplings[] = {Sampling::poisson, Sampling::truncated_poisson,
                                  Sampling::fixed_size, Sampling::partition,
                                  Sampling::balls_and_bins};

}  // namespace

std::vector<std::string> trainable_sampling_names() {
  std::vector<std::string> names;
  for (const Sampling sampling : samplings) names.emplace_back(name(sampling));
  return names;
}

NeighboringRelation relation_of(const Settings& s) {
  const Sampling sampling = parse_sampling("--sampling", s.sampling);
  const bool exchanged = sampling == Sampling::fixed_size || sampling == Sampling::partition;
  return exchanged ? NeighboringRelation::replace_one : NeighboringRelation::add_or_remove_one;
}

LedgerHeader header_of(const Settings& s) { return {.unit = s.unit, .relation = relation_of(s)}; }

EngineOptions engine_options(const Settings& s) {
  EngineOptions options{.noise_multiplier = s.noise_multiplier,
                        .target_epsilon = s.epsilon,
                        .delta = s.delta,
                        .steps = planned_steps(s),
                        .planned_means = s.planned_means,
                        .accountant = parse_accountant(s.accountant),
                        .sampling = parse_sampling("--sampling", s.sampling),
                        .logical_batch = s.batch,
                        .max_batch_size = s.max_batch_size,
                        .memory = s.memory,
                        .unit = s.unit,
                        .clip_bound = s.clip_bound,
                        .clipping = {.rule = {.kind = clip_rule_kind(s.clip_rule)}},
                        .seed = s.seed};
  if (s.passes != "auto") options.passes = s.passes == "ghost" ? ClipPasses::two : ClipPasses::one;
  if (s.adaptive_quantile)
    options.adaptive_clipping = AdaptiveClipping{.quantile = *s.adaptive_quantile};
  return options;
}

std::int64_t planned_steps(const Settings& s) {
  if (s.steps) return *s.steps;
  if (!s.privacy) {  // the last batch of an epoch may be smaller
    const double steps_per_epoch = std::ceil(static_cast<double>(s.train_size) / s.batch);
    return std::max<std::int64_t>(1, std::llround(s.epochs * steps_per_epoch));
  }
  return std::max<std::int64_t>(
      1, std::llround(s.epochs * static_cast<double>(s.train_size) / s.batch));
}

double epochs_of(const Settings& s, std::int64_t steps) {
  const double per_epoch = static_cast<double>(s.train_size) / s.batch;
  return static_cast<double>(steps) / (s.privacy ? per_epoch : std::ceil(per_epoch));
}

}  // namespace sotto::samples
