// All settings that decide what a run computes, except for those of its task: the command line and
// presets set them, checkpoints and reports contain them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "dp/engine/engine.h"

namespace sotto::samples {

struct Settings {
  bool privacy = true;
  // Private training needs exactly one of the two.
  std::optional<double> epsilon = 3;
  std::optional<double> noise_multiplier;
  double delta = 1e-5;
  double clip_bound = 0.1;
  std::string clip_rule = "minimum";
  std::string clip_groups = "flat";         // or "layers"
  std::optional<double> adaptive_quantile;  // the quantile of the norms that the clip bound follows
  std::string accountant = "pld";
  std::string sampling = "poisson";
  std::int64_t max_batch_size = 0;  // for truncated Poisson sampling
  std::string passes = "auto";
  // Releases before the first step, as the task's settings say (Task::standardize).
  std::vector<PlannedMeans> planned_means;

  double epochs = 20;
  std::optional<std::int64_t> steps;  // instead of epochs
  double batch = 1024;                // logical: the expected number of samples in a step
  memory::Policy memory;
  std::string optimizer = "sgd";
  double learning_rate = 0.5;
  double momentum = 0.9;
  std::string schedule = "constant";
  std::int64_t warmup = 0;        // steps over which the learning rate rises at first
  std::optional<double> average;  // decay of the moving average of the weights
  bool average_warmup = false;    // whether that decay begins small (nn/optim/moving_average.h)
  std::uint64_t seed = 0;         // public randomness: initial weights, drawn digits, shuffling

  std::string unit = LedgerHeader{}.unit;  // the privacy unit, in words
  std::int64_t train_size = 60'000;        // units of the training data
  std::int64_t test_size = 10'000;         // samples of the test data
  // What --train-size and --test-size ask for: the data may have fewer, and some may be held out.
  // Not settings of their own, but what a checkpoint keeps to load the same data again.
  std::int64_t requested_train_size = 0;
  std::int64_t requested_test_size = 0;
  // The fraction of the training units that take the place of the test data, to choose settings by;
  // 0: none.
  double validation = 0;

  Device device = cpu;   // device of the model
  bool capture = false;  // replay forward and backward as CUDA graphs, if possible
};

// Says if a resumed run may change the setting.
enum class OnResume { must_agree, may_change };

// Calls visit(name, member, on_resume) for every setting that a checkpoint contains. The data's
// folder, the device and CUDA graphs are not among them: a model file says nothing about the
// machine it was made on.
template <class S, class Visit>
void visit_settings(S& settings, Visit&& visit) {
  using enum OnResume;
  visit("privacy", settings.privacy, must_agree);
  visit("epsilon", settings.epsilon, must_agree);
  visit("noise multiplier", settings.noise_multiplier, must_agree);
  visit("delta", settings.delta, must_agree);
  visit("clip bound", settings.clip_bound, must_agree);
  visit("clip rule", settings.clip_rule, must_agree);
  visit("clip groups", settings.clip_groups, must_agree);
  visit("adaptive quantile", settings.adaptive_quantile, must_agree);
  visit("accountant", settings.accountant, must_agree);
  visit("sampling", settings.sampling, must_agree);
  visit("largest batch", settings.max_batch_size, must_agree);
  visit("passes", settings.passes, may_change);
  visit("precision", settings.memory.precision, may_change);
  visit("epochs", settings.epochs, may_change);
  visit("steps", settings.steps, may_change);
  visit("batch", settings.batch, must_agree);
  visit("physical batch", settings.memory.physical_batch, may_change);
  visit("accumulation", settings.memory.accumulation, may_change);
  visit("checkpoint", settings.memory.checkpoint, may_change);
  visit("memory limit", settings.memory.limit, may_change);
  visit("optimizer", settings.optimizer, must_agree);
  visit("learning rate", settings.learning_rate, may_change);
  visit("momentum", settings.momentum, may_change);
  visit("schedule", settings.schedule, may_change);
  visit("warmup", settings.warmup, may_change);
  visit("average", settings.average, must_agree);
  visit("average warmup", settings.average_warmup, must_agree);
  visit("seed", settings.seed, must_agree);
  visit("unit", settings.unit, must_agree);
  visit("train size", settings.train_size, must_agree);
  visit("test size", settings.test_size, may_change);
  visit("validation", settings.validation, must_agree);
}

// "test", or "validation": the data that results are measured on.
const char* held_out(const Settings& settings);

// A JSON object with the names above, null for unset. Reading throws nlohmann::json::exception for
// an entry that is missing or of the wrong type.
nlohmann::json to_json(const Settings& settings);
Settings settings_from_json(const nlohmann::json& json);

// All differences: "steps is 5 instead of not set, ...".
std::string changes(const nlohmann::json& settings, const nlohmann::json& of);

// Throws std::invalid_argument, in one line, for the first value that is out of range.
void validate(const Settings& settings);

// The engine's options, except for clip groups, which need the network.
EngineOptions engine_options(const Settings& settings);
// The neighboring relation for which the sampling has a proof.
NeighboringRelation relation_of(const Settings& settings);
LedgerHeader header_of(const Settings& settings);
std::vector<std::string> trainable_sampling_names();

// The planned number of steps.
std::int64_t planned_steps(const Settings& settings);
// The number of epochs that `steps` amount to.
double epochs_of(const Settings& settings, std::int64_t steps);

}  // namespace sotto::samples
