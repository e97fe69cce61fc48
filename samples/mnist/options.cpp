#include "samples/mnist/options.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <unistd.h>
#include <CLI/CLI.hpp>

#include "samples/mnist/presets.h"
#include "samples/models.h"
#include "sotto/core/error.h"
#include "sotto/dp/ledger_contents.h"

namespace sotto::mnist {

namespace {

constexpr int help_column = 30;
constexpr int most_threads = 1024;

// Options that contradict one another.
constexpr std::pair<const char*, const char*> conflicts[] = {
    {"--epsilon", "--noise-multiplier"},
    {"--epochs", "--steps"},
    {"--save", "--resume"},
    {"--preset", "--resume"},
    {"--no-privacy", "--epsilon"},
    {"--no-privacy", "--noise-multiplier"},
    {"--no-privacy", "--delta"},
    {"--no-privacy", "--clip"},
    {"--no-privacy", "--clip-rule"},
    {"--no-privacy", "--passes"},
    {"--no-privacy", "--write-ahead"},
    {"--no-privacy", "--clip-groups"},
    {"--no-privacy", "--adaptive-quantile"},
    {"--no-privacy", "--sampling"},
    {"--no-privacy", "--largest-batch"},
    {"--no-privacy", "--accountant"},
};

// One reading of the command line on top of given values.
class CommandLine {
 public:
  explicit CommandLine(Options& options) : options_(options) {
    app_.get_formatter()->column_width(help_column);
    app_.option_defaults()->always_capture_default();
    app_.set_help_flag("-h,--help", "print this help and exit");
    add_data();
    add_privacy();
    add_training();
    add_memory();
    add_files();
    add_running();
  }

  // False when the help was asked for, and printed.
  bool parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app_.help());
      return false;
    } catch (const CLI::ParseError& error) {
      fail(error.what());
    }
    for (const auto& [one, other] : conflicts) {
      check(!given(one) || !given(other), "{} and {} do not go together", one, other);
    }
    options_.settings.privacy = !no_privacy_;
    options_.settings.data_from_files = !options_.settings.data.empty();
    return true;
  }

  bool given(const char* option) const { return app_[option]->count() > 0; }
  const std::string& preset() const { return preset_; }
  const std::string& resume() const { return resume_; }

 private:
  template <class T>
  CLI::Option* option(const char* name, T& value, const std::string& text, const char* type) {
    return app_.add_option(name, value, text)->type_name(type)->group(group_);
  }
  void flag(const char* name, bool& value, const char* text) {
    app_.add_flag(name, value, text)->group(group_);
  }
  void choice(const char* name, std::string& value, const std::string& text,
              const std::vector<std::string>& names) {
    option(name, value, fmt::format("{}: {}", text, fmt::join(names, ", ")), "NAME")
        ->check([names](const std::string& given) {
          if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
          return fmt::format("{} is not one of {}", given, fmt::join(names, ", "));
        });
  }

  void add_data();
  void add_privacy();
  void add_training();
  void add_memory();
  void add_files();
  void add_running();

  Options& options_;
  bool no_privacy_ = false;
  std::string preset_, resume_;
  std::string group_;
  CLI::App app_{"Trains a small convolutional network to read digits, with differential privacy."};
};

void CommandLine::add_data() {
  Settings& s = options_.settings;
  group_ = "Data";
  option("--data", s.data, "read MNIST from this folder (IDX files, plain or gzipped)", "DIR");
  option("--train-size", s.train_size, "training samples, at most", "N");
  option("--test-size", s.test_size, "test samples, at most", "N");
  flag("--normalize", s.normalize, "shift and scale pixels by MNIST's public constants");
}

void CommandLine::add_privacy() {
  Settings& s = options_.settings;
  group_ = "Privacy";
  option("--epsilon", s.epsilon, "the privacy to keep; sets the noise", "X");
  option("--noise-multiplier", s.noise_multiplier,
         "noise deviation over clip bound, instead of --epsilon", "X");
  option("--delta", s.delta, "the probability that epsilon may fail by", "X");
  option("--clip", s.clip_bound, "bound of each sample's gradient norm", "X");
  choice("--clip-rule", s.clip_rule, "how norms become factors", clip_rule_names());
  choice("--clip-groups", s.clip_groups, "what is clipped together", {"flat", "layers"});
  option("--adaptive-quantile", s.adaptive_quantile,
         "let the bound follow this quantile of the norms, privately", "X");
  choice("--sampling", s.sampling, "how batches are drawn", sampling_names());
  option("--largest-batch", s.largest_batch, "most samples of a truncated_poisson batch", "N");
  choice("--accountant", s.accountant, "what proves epsilon", {"pld", "prv", "rdp"});
  choice("--passes", s.passes, "backward passes, the second instead of memory",
         {"auto", "one", "two"});
  option("--write-ahead", options_.write_ahead,
         "releases charged at a time; a crash charges the rest too", "N");
  flag("--no-privacy", no_privacy_, "ordinary training, for comparison: NO PRIVACY AT ALL");
}

void CommandLine::add_training() {
  Settings& s = options_.settings;
  group_ = "Training";
  option("--preset", preset_,
         fmt::format("settings that work: {}", fmt::join(preset_names(), ", ")), "NAME");
  option("--epochs", s.epochs, "passes over the training data", "X");
  option("--steps", s.steps, "steps, instead of --epochs", "N");
  option("--batch", s.batch, "expected samples in a (logical) batch", "X");
  choice("--activation", s.activation, "nonlinearity", models::activation_names());
  choice("--optimizer", s.optimizer, "update rule", {"sgd", "adam"});
  option("--lr", s.learning_rate,
         fmt::format("learning rate (without privacy: {})", ordinary_learning_rate), "X");
  choice("--lr-schedule", s.schedule, "learning rate over time", {"constant", "linear", "cosine"});
  option("--warmup", s.warmup, "steps over which the learning rate rises first", "N");
  option("--momentum", s.momentum, "momentum of sgd, beta1 of adam", "X");
  option("--ema", s.average, "average the weights with this decay; costs no privacy", "X");
  option("--seed", s.seed, "public randomness: initial weights, drawn digits", "N")
      ->check([](const std::string& given) {
        const bool digits =
            !given.empty() && given.find_first_not_of("0123456789") == std::string::npos;
        return digits ? std::string() : given + " is not a whole number of 0 or more";
      });  // the parser itself would let -1 wrap around
}

void CommandLine::add_memory() {
  memory::Policy& policy = options_.settings.memory;
  group_ = "Memory";
  option("--physical-batch", policy.physical_batch,
         fmt::format("samples computed at once, at most (found from --memory-limit, else {})",
                     memory::usual_physical_batch),
         "N");
  option("--accumulation", policy.accumulation, "parts that a batch is computed in, at least", "N");
  choice("--precision", options_.settings.precision, "what products and activations are in",
         {"auto", "f32", "bf16", "f16"});
  app_.add_option_function<std::string>(
          "--memory-limit",
          [&policy](const std::string& text) { policy.limit = memory::parse_bytes(text); },
          "bytes that tensors may take, such as 800MB: what is auto is chosen to keep it")
      ->type_name("SIZE")
      ->group(group_)
      ->check([](const std::string& text) {
        try {
          memory::parse_bytes(text);
          return std::string();
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
      });
}

void CommandLine::add_files() {
  group_ = "Files";
  option("--save", options_.save, "write checkpoints here, and the ledger to FILE.ledger", "FILE");
  option("--resume", resume_, "continue from this checkpoint, and save there", "FILE");
  option("--save-every", options_.save_every, "steps between checkpoints; 0: an epoch", "N");
  option("--report", options_.report, "write a page about the run", "FILE");
  option("--json", options_.json, "write the page's contents as JSON", "FILE");
}

void CommandLine::add_running() {
  group_ = "Running";
  option("--eval-every", options_.eval_every, "steps between evaluations; 0: an epoch", "N");
  option("--threads", options_.threads, "threads to compute with; 0: all", "N");
  flag("--quiet", options_.quiet, "print the closing line only");
}

// A choice on the command line takes the place of the other that a preset or checkpoint made.
void resolve(const CommandLine& line, Settings& s) {
  if (line.given("--noise-multiplier")) s.epsilon.reset();
  if (line.given("--epsilon")) s.noise_multiplier.reset();
  if (line.given("--epochs")) s.steps.reset();
}

void check_writable(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  check(fs::is_directory(folder), "{}: there is no folder {}", option, folder.string());
  check(access(folder.c_str(), W_OK) == 0, "{}: the folder {} is not writable", option,
        folder.string());
  check(!fs::is_directory(path), "{}: {} is a folder", option, path);
}

void check_files(const Options& options) {
  check_writable("--save", options.save);
  check_writable("--report", options.report);
  check_writable("--json", options.json);
  std::set<std::string> paths;
  std::vector<std::string> all = {options.report, options.json};
  if (!options.save.empty()) {
    all.insert(all.end(), {options.save, ledger_path(options.save), statistics_path(options.save)});
  }
  for (const std::string& path : all) {
    if (path.empty()) continue;
    const bool first = paths.insert(std::filesystem::absolute(path).lexically_normal()).second;
    check(first, "two files have the same name: {}", path);
  }
}

// A run must not overwrite what another left, its ledger least of all.
void check_unused(const Options& options) {
  if (options.save.empty() || options.resumed) return;
  for (const std::string& path : {options.save, ledger_path(options.save)}) {
    check(!std::filesystem::exists(path), "--save: {} is there already (--resume continues it)",
          path);
  }
}

void check_numbers(const Options& options) {
  check(options.save_every >= 0, "--save-every: {} steps", options.save_every);
  check(options.eval_every >= 0, "--eval-every: {} steps", options.eval_every);
  check(options.write_ahead >= 1 && options.write_ahead <= largest_reservation,
        "--write-ahead: {} is not from 1 to {}", options.write_ahead, largest_reservation);
  check(options.threads >= 0 && options.threads <= most_threads,
        "--threads: {} is not from 0 to {}", options.threads, most_threads);
}

void check_resumable(const Options& options) {
  if (!options.resumed) return;
  const std::string text = differences(options.settings, options.resumed->settings);
  check(text.empty(), "--resume: {}", text);
  if (!options.settings.privacy) return;
  const double noise = noise_multiplier(options.settings);
  check(noise == options.resumed->noise_multiplier,
        "--resume: the noise multiplier would be {:.6g} and is {:.6g} in the checkpoint: with a "
        "target epsilon the number of steps cannot change",
        noise, options.resumed->noise_multiplier);
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options first;
  CommandLine names(first);
  if (!names.parse(argc, argv)) return std::nullopt;
  Options options;
  if (!names.preset().empty()) options.settings = preset(names.preset());
  if (!names.resume().empty()) {
    options.resumed = load_checkpoint(names.resume());
    options.settings = options.resumed->settings;
  }
  const bool privacy = options.settings.privacy;
  CommandLine line(options);
  line.parse(argc, argv);
  if (options.resumed) {
    options.save = line.resume();
    options.settings.privacy = privacy && !line.given("--no-privacy");
  }
  resolve(line, options.settings);
  if (!options.settings.privacy && !options.resumed && !line.given("--lr")) {
    options.settings.learning_rate = ordinary_learning_rate;
  }
  validate(options.settings);
  check_numbers(options);
  check_files(options);
  check_unused(options);
  check_resumable(options);
  return options;
}

}  // namespace sotto::mnist
