#include "samples/audit/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "sotto/core/error.h"

namespace sotto::audit {

namespace {

constexpr int help_column = 30;
constexpr int most_threads = 1024;
constexpr std::int64_t most_samples = std::int64_t{1} << 40;

class CommandLine {
 public:
  explicit CommandLine(Options& options) : options_(options) {
    app_.get_formatter()->column_width(help_column);
    app_.option_defaults()->always_capture_default();
    app_.set_help_flag("-h,--help", "print this help and exit");
    app_.footer(
        "The exit status is 0 when no bound is above the claim, 3 when one is, 2 for wrong\n"
        "arguments and 1 for other failures. docs/audit.md says what the bounds mean.");
    add_training();
    add_audit();
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
    check(app_["--epsilon"]->count() == 0 || !options_.noise_multiplier,
          "--epsilon and --noise-multiplier do not go together");
    return true;
  }

 private:
  template <class T>
  CLI::Option* option(const char* name, T& value, const std::string& text, const char* type) {
    return app_.add_option(name, value, text)->type_name(type)->group(group_);
  }

  void add_training() {
    Options& o = options_;
    group_ = "Training";
    option("--data", o.data, "read MNIST from this folder (IDX files, plain or gzipped)", "DIR");
    option("--train-size", o.train_size, "training samples, at most", "N");
    option("--epsilon", o.epsilon, "the privacy to keep; sets the noise", "X");
    option("--noise-multiplier", o.noise_multiplier,
           "noise deviation over clip bound, instead of --epsilon", "X");
    option("--delta", o.delta, "the probability that epsilon may fail by", "X");
    option("--clip", o.clip_bound, "bound of each sample's gradient norm", "X");
    option("--batch", o.batch, "expected units in a (logical) batch, canaries among them", "X");
    option("--physical-batch", o.physical_batch, "samples computed at once, at most", "N");
    option("--steps", o.steps, "steps of plain SGD", "N");
    option("--lr", o.learning_rate, "learning rate", "X");
  }

  void add_audit() {
    Options& o = options_;
    group_ = "Audit";
    option("--canaries", o.canaries, "canaries, half of which take part", "N");
    option("--on", o.on, "put them on this parameter alone, as conv1.weight", "NAME");
    option("--score", o.score,
           "likelihood: by the Gaussian that is promised; spread: by how releases differ", "NAME")
        ->check(CLI::IsMember({"likelihood", "spread"}));
    option("--confidence", o.confidence, "of each bound", "X");
    option("--claim", o.claim, "judge this epsilon and not the accountant's", "X");
  }

  void add_running() {
    Options& o = options_;
    group_ = "Running";
    option("--report", o.report, "write a page about the audit", "FILE");
    option("--json", o.json, "write the page's contents and all scores as JSON", "FILE");
    option("--seed", o.seed, "public randomness: initial weights, drawn digits, places", "N")
        ->check([](const std::string& given) {
          const bool digits =
              !given.empty() && given.find_first_not_of("0123456789") == std::string::npos;
          return digits ? std::string() : given + " is not a whole number of 0 or more";
        });  // the parser itself would let -1 wrap around
    option("--threads", o.threads, "threads to compute with; 0: all", "N");
    app_.add_flag("--quiet", o.quiet, "print the findings only")->group(group_);
  }

  Options& options_;
  std::string group_;
  CLI::App app_{
      "Audits private training: trains the network of the sample mnist with canaries, and proves "
      "from what it released how much privacy was lost at least."};
};

template <class T>
void require(bool ok, const char* option, const T& value, const char* range) {
  check(ok, "{}: {} is not {}", option, value, range);
}

void validate(const Options& o) {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  const auto count = [](std::int64_t n) { return n >= 1 && n <= most_samples; };
  require(count(o.train_size), "--train-size", o.train_size, "a number of samples");
  require(positive(o.epsilon), "--epsilon", o.epsilon, "a positive number");
  if (o.noise_multiplier) {
    require(positive(*o.noise_multiplier), "--noise-multiplier", *o.noise_multiplier,
            "a positive number");
  }
  require(o.delta > 0 && o.delta < 1, "--delta", o.delta, "between 0 and 1");
  require(positive(o.clip_bound), "--clip", o.clip_bound, "a positive number");
  require(positive(o.batch), "--batch", o.batch, "a positive number");
  require(count(o.physical_batch), "--physical-batch", o.physical_batch, "a number of samples");
  require(count(o.steps), "--steps", o.steps, "a number of steps");
  require(positive(o.learning_rate), "--lr", o.learning_rate, "a positive number");
  require(o.canaries >= 4 && o.canaries <= most_samples, "--canaries", o.canaries, "at least 4");
  require(o.confidence > 0 && o.confidence < 1, "--confidence", o.confidence, "between 0 and 1");
  require(!o.claim || (std::isfinite(*o.claim) && *o.claim >= 0), "--claim", o.claim.value_or(0),
          "a number of 0 or more");
  require(o.threads >= 0 && o.threads <= most_threads, "--threads", o.threads, "from 0 to 1024");
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

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  if (!CommandLine(options).parse(argc, argv)) return std::nullopt;
  validate(options);
  check_writable("--report", options.report);
  check_writable("--json", options.json);
  check(options.report.empty() || options.report != options.json,
        "two files have the same name: {}", options.report);
  return options;
}

}  // namespace sotto::audit
