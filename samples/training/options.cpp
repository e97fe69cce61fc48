#include "samples/training/options.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/devices.h"
#include "core/io/atomic_file.h"
#include "core/join.h"
#include "core/ranks/collectives.h"
#include "core/ranks/rank_threads.h"
#include "dp/engine/private_selection.h"
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/training/option_files.h"

namespace sotto::samples {

namespace {

// Pairs of options that conflict.
constexpr std::pair<const char*, const char*> conflicts[] = {
    {"--epsilon", "--noise-multiplier"},
    {"--epochs", "--steps"},
    {"--save", "--resume"},
    {"--no-privacy", "--epsilon"},
    {"--no-privacy", "--noise-multiplier"},
    {"--no-privacy", "--delta"},
    {"--no-privacy", "--clip-bound"},
    {"--no-privacy", "--clip-rule"},
    {"--no-privacy", "--clipping"},
    {"--no-privacy", "--ledger-block"},
    {"--no-privacy", "--ledger"},
    {"--no-privacy", "--clip-groups"},
    {"--no-privacy", "--adaptive-clip-quantile"},
    {"--no-privacy", "--sampling"},
    {"--no-privacy", "--max-batch-size"},
    {"--no-privacy", "--accountant"},
    {"--no-privacy", "--compare"},
};

std::vector<std::string> preset_names(Task& task) {
  std::vector<std::string> names;
  for (const Preset& preset : task.facts().presets) names.emplace_back(preset.name);
  return names;
}

Preset preset(Task& task, const std::string& wanted) {
  for (const Preset& preset : task.facts().presets) {
    if (wanted == preset.name) return preset;
  }
  fail(fmt::format("--preset: no preset is called {} (there are: {})", wanted,
                   join(preset_names(task), ", ")));
}

// Parses the command line on top of given values.
class Reading {
 public:
  Reading(Task& task, Options& options)
      : task_(task), options_(options), line_(task.facts().description) {
    for (const auto& [one, other] : conflicts) line_.conflict(one, other);
    add_data();
    add_privacy();
    add_training();
    line_.add_memory(options_.settings.memory);
    add_files();
    add_running();
  }

  // Returns false if the help was requested; it has been printed then.
  bool parse(int argc, const char* const* argv) {
    if (!line_.parse(argc, argv)) return false;
    options_.settings.privacy = !no_privacy_;
    return true;
  }

  bool given(const char* option) const { return line_.given(option); }
  const std::string& preset() const { return preset_; }
  const std::string& resume() const { return resume_; }

 private:
  void add_data();
  void add_privacy();
  void add_training();
  void add_files();
  void add_running();

  Task& task_;
  Options& options_;
  bool no_privacy_ = false;
  std::string preset_, resume_;
  CommandLine line_;
};

void Reading::add_data() {
  line_.group("Data");
  task_.add_options(line_, Task::Options::data, options_.settings);
  line_.option("--validation", options_.settings.validation,
               "measure on this part of the training data instead of the test data, to choose "
               "settings by: NOT PRIVATE",
               "X");
}

void Reading::add_privacy() {
  Settings& s = options_.settings;
  line_.group("Privacy");
  line_.option("--epsilon", s.epsilon, "the target epsilon; sets the noise", "X");
  line_.option("--noise-multiplier", s.noise_multiplier,
               "noise standard deviation over clip bound, instead of --epsilon", "X");
  line_.option("--delta", s.delta, "the probability that epsilon may fail by", "X");
  line_.option("--clip-bound", s.clip_bound, "bound of each sample's gradient norm", "X");
  line_.choice("--clip-rule", s.clip_rule, "rule that turns norms into clip factors",
               clip_rule_names());
  line_.choice("--clip-groups", s.clip_groups, "parameters clipped together: all or by layer",
               {"flat", "layers"});
  line_.option("--adaptive-clip-quantile", s.adaptive_quantile,
               "let the bound follow this quantile of the norms, privately", "X");
  line_.choice("--sampling", s.sampling, "how batches are sampled", trainable_sampling_names());
  line_.option("--max-batch-size", s.max_batch_size, "maximum samples of a truncated_poisson batch",
               "N");
  line_.choice("--accountant", s.accountant, "accountant that proves epsilon",
               {"pld", "prv", "rdp"});
  line_.choice("--clipping", s.passes,
               "book-keeping: one backward pass; ghost: two, in less memory",
               {"auto", "book-keeping", "ghost"});
  line_.option("--ledger", options_.ledger,
               "continue the budget of this ledger: what it holds counts towards --epsilon",
               "FILE");
  line_.option("--ledger-block", options_.write_ahead,
               "releases the ledger reserves at a time; a crash charges unused ones, too", "N");
  line_.flag("--compare", options_.compare,
             "afterwards train without privacy, too, and print its result, which is NOT PRIVATE");
  line_.flag("--no-privacy", no_privacy_, "ordinary training, for comparison: NO PRIVACY AT ALL");
}

void Reading::add_training() {
  Settings& s = options_.settings;
  line_.group("Training");
  if (const std::vector<std::string> names = preset_names(task_); !names.empty()) {
    line_.option("--preset", preset_, "settings that work: " + join(names, ", "), "NAME");
    line_.conflict("--preset", "--resume");
  }
  line_.option("--epochs", s.epochs, "passes over the training data", "X");
  line_.option("--steps", s.steps, "steps, instead of --epochs", "N");
  line_.option("--batch-size", s.batch, "expected samples in a (logical) batch", "X");
  task_.add_options(line_, Task::Options::model, s);
  line_.choice("--optimizer", s.optimizer, "update rule", {"sgd", "adam"});
  line_.option(
      "--lr", s.learning_rate,
      fmt::format("learning rate (without privacy: {})", task_.facts().ordinary_learning_rate),
      "X");
  line_.choice("--lr-schedule", s.schedule, "learning rate over time",
               {"constant", "linear", "cosine"});
  line_.option("--warmup", s.warmup, "steps over which the learning rate rises first", "N");
  line_.option("--momentum", s.momentum, "momentum of sgd, beta1 of adam", "X");
  line_.option("--ema", s.average, "average the weights with this decay; costs no privacy", "X");
  line_.flag("--ema-warmup", s.average_warmup,
             "let the average forget early weights: its decay is t / (9 + t) at first");
  line_.add_seed(s.seed, "public randomness, such as initial weights");
}

void Reading::add_files() {
  line_.group("Files");
  line_.option("--save", options_.save,
               "write the model here: weights and privacy statement; beside it FILE.state, "
               "SECRET, to resume from, and FILE.ledger, the privacy ledger",
               "FILE");
  line_.option("--resume", resume_, "continue what was saved as FILE, and save there", "FILE");
  line_.option("--save-every", options_.save_every, "steps between savings; 0: an epoch", "N");
  line_.flag(
      "--statistics", options_.statistics,
      "save losses and norms to FILE.statistics.json, so that the report of a resumed run is "
      "whole: NOT PRIVATE");
  line_.option("--report", options_.report, "write a page about the run", "FILE");
  line_.option("--json", options_.json, "write the page's contents as JSON", "FILE");
}

void Reading::add_running() {
  line_.group("Running");
  line_.option("--eval-every", options_.eval_every, "steps between evaluations; 0: an epoch", "N");
  line_.add_device(options_.settings.device, &options_.any_gpu);
  line_.flag("--cuda-graph", options_.settings.capture,
             "on a GPU, capture forward and backward as CUDA graphs and replay them");
  line_.add_threads(options_.threads);
  line_.flag("--quiet", options_.quiet, "print the closing line only");
  line_.flag("--dry-run", options_.dry_run,
             "say what the run would take: parameters, epsilon, seconds, memory; nothing is spent");
}

// An option on the command line replaces its alternative in a preset or checkpoint.
void resolve(const Reading& line, Settings& s) {
  if (line.given("--noise-multiplier")) s.epsilon.reset();
  if (line.given("--epsilon")) s.noise_multiplier.reset();
  if (line.given("--epochs")) s.steps.reset();
}

void check_numbers(const Options& options) {
  check(options.save_every >= 0, "--save-every: {} steps", options.save_every);
  check(options.eval_every >= 0, "--eval-every: {} steps", options.eval_every);
  check(options.write_ahead >= 1 && options.write_ahead <= max_reservation,
        "--ledger-block: {} is not from 1 to {}", options.write_ahead, max_reservation);
  check(!options.statistics || !options.save.empty(), "--statistics: needs --save or --resume");
  check_threads(options.threads);
  const Device device = options.settings.device;
  check(!options.settings.capture || device != cpu,
        "--cuda-graph: the {} has no CUDA graphs (give --device cuda)", name(device));
}

// The preset's name, and how the settings differ from it. A preset fits any data: those settings
// that it does not name may be of the data.
std::string compared(const std::string& name, const nlohmann::json& settings,
                     const nlohmann::json& of) {
  const std::string text = changes(settings, of);
  return text.empty() ? name : fmt::format("{}, but {}", name, text);
}

// "batch 4096.0, clip bound 1.0": the settings that differ from those of `defaults`.
std::string recipe(const nlohmann::json& settings, const nlohmann::json& defaults) {
  std::vector<std::string> all;
  for (const auto& [name, value] : settings.items()) {
    if (value != defaults.value(name, nlohmann::json(nullptr)) && !value.is_null())
      all.push_back(fmt::format("{} {}", name, value.dump()));
  }
  return join(all, ", ");
}

void check_resumable(Task& task, const Options& options) {
  if (!options.resumed || !options.resumed->section) return;
  const ProgramSection& section = *options.resumed->section;
  const std::string text = differences(options.settings, task, section.all_settings);
  check(text.empty(), "--resume: {}", text);
  if (!options.settings.privacy) return;
  const Settings& s = options.settings;
  const double noise =
      first_noise_multiplier(s.train_size, engine_options(s), Ledger(header_of(s)));
  const double then = section.noise_multiplier;
  // What a continued ledger held before called for more noise.
  check(noise == then || (!options.ledger.empty() && noise < then),
        "--resume: the noise multiplier would be {:.6g} and is {:.6g} in the checkpoint: with a "
        "target epsilon the number of steps cannot change",
        noise, then);
}

// The preset or the checkpoint that the command line is read on top of.
void begin_with(const Reading& names, Task& task, Options& options) {
  if (!names.preset().empty()) {
    const Preset chosen = preset(task, names.preset());
    const nlohmann::json defaults = all_settings(options.settings, task);
    options.settings = chosen.settings;
    assign(task, chosen.task);
    options.recipe = recipe(all_settings(options.settings, task), defaults);
  }
  if (!options.resumed || !options.resumed->section) return;
  options.settings = options.resumed->section->settings;
  assign(task, options.resumed->section->all_settings);
}

// A resumed run loads as many samples as the run that it continues. Its command line may say the
// sizes again that this run asked for, of which it got fewer.
void request_sizes(Options& options) {
  Settings& s = options.settings;
  if (!options.resumed || !options.resumed->section) {
    s.requested_train_size = s.train_size;
    s.requested_test_size = s.test_size;
    return;
  }
  const Settings& then = options.resumed->section->settings;
  if (s.train_size == then.requested_train_size) s.train_size = then.train_size;
  if (s.test_size != then.test_size) s.requested_test_size = s.test_size;
}

void read_again(Task& task, int argc, const char* const* argv, Options& options) {
  const bool privacy = options.settings.privacy;
  const nlohmann::json before = all_settings(options.settings, task);
  Reading line(task, options);
  line.parse(argc, argv);
  for (const char* option : task.facts().unused_options)
    check(!line.given(option), "{}: has no effect on this model", option);
  if (options.resumed) {
    options.save = line.resume();
    if (options.resumed->section) options.settings.privacy = privacy && !line.given("--no-privacy");
    check(options.settings.privacy == options.resumed->ledger.has_value(),
          "--resume: privacy is {} here and {} in the checkpoint", options.settings.privacy,
          options.resumed->ledger.has_value());
  }
  resolve(line, options.settings);
  request_sizes(options);
  const bool set_before = options.resumed && options.resumed->section;
  if (!options.settings.privacy && !set_before && !line.given("--lr")) {
    options.settings.learning_rate = task.facts().ordinary_learning_rate;
  }
  if (!line.preset().empty())
    options.preset = compared(line.preset(), all_settings(options.settings, task), before);
  task.prepare(options.settings);
  validate(options.settings);
  check_numbers(options);
}

// Refuses what several ranks do not do.
void check_several(Task& task, const Options& options) {
  const Settings& s = options.settings;
  check(task.facts().on_several_ranks, "one of several processes: this program trains in one");
  check(s.memory.limit == 0 || s.memory.precision || (s.privacy && !options.compare),
        "--memory-limit: several processes need --precision, which they could choose apart");
}

}  // namespace

std::optional<Options> parse_options(Task& task, int argc, const char* const* argv, Ranks& ranks) {
  const nlohmann::json task_defaults = settings_json(task);
  Options first{.settings = task.facts().defaults}, options = first;
  Reading names(task, first);
  bool goes_on = false;
  on_all_ranks(ranks, "programs: help", [&] { goes_on = names.parse(argc, argv); });
  if (!goes_on) return std::nullopt;
  assign(task, task_defaults);
  on_rank_0(ranks, "programs: locks", [&] {
    const bool resumes = !names.resume().empty();
    options.locks =
        locks_of(resumes ? "--resume" : "--save", resumes ? names.resume() : first.save);
  });
  if (!names.resume().empty())
    options.resumed = load_saved(ranks, names.resume(), task.facts().program);
  on_all_ranks(ranks, "programs: options", [&] {
    begin_with(names, task, options);
    read_again(task, argc, argv, options);
    if (ranks.size() > 1) check_several(task, options);
  });
  if (ranks.size() > 1 && options.any_gpu)
    on_all_ranks(ranks, "programs: GPUs", [&] { options.settings.device = gpu_of_rank(ranks); });
  // A rank on another host may see what rank 0 does not: an earlier run that would be forgotten.
  on_all_ranks(ranks, "programs: unused names", [&] { check_unused(options); });
  on_rank_0(ranks, "programs: files", [&] {
    check_files(task, options);
    check_resumable(task, options);
  });
  return options;
}

}  // namespace sotto::samples
