#include "samples/audit/options.h"

#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "core/io/atomic_file.h"
#include "dp/ledger/ledger.h"
#include "dp/ledger/ledger_text.h"
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/mnist/digits_task.h"

namespace sotto::audit {

namespace {

using samples::require;

constexpr std::int64_t max_samples = std::int64_t{1} << 40;

class AuditCommandLine {
 public:
  explicit AuditCommandLine(Options& options) : options_(options) {
    line_.conflict("--epsilon", "--noise-multiplier");
    add_training();
    line_.add_memory(options.memory);
    add_audit();
    add_running();
  }

  // Returns false if the help was requested; it has been printed then.
  bool parse(int argc, const char* const* argv) { return line_.parse(argc, argv); }

 private:
  void add_training() {
    Options& o = options_;
    line_.group("Training");
    samples::add_files_option(line_, "--data", o.data, &samples::Files::train,
                              "read MNIST from this folder (IDX files, plain or gzipped)", "DIR");
    line_.option("--train-size", o.train_size, "training samples, at most", "N");
    line_.option("--epsilon", o.epsilon, "the target epsilon; sets the noise", "X");
    line_.option("--noise-multiplier", o.noise_multiplier,
                 "noise standard deviation over clip bound, instead of --epsilon", "X");
    line_.option("--delta", o.delta, "the probability that epsilon may fail by", "X");
    line_.option("--clip-bound", o.clip_bound, "bound of each sample's gradient norm", "X");
    line_.option("--batch-size", o.batch, "expected units in a (logical) batch, canaries included",
                 "X");
    line_.option("--steps", o.steps, "steps of plain SGD", "N");
    line_.option("--lr", o.learning_rate, "learning rate", "X");
  }

  void add_audit() {
    Options& o = options_;
    line_.group("Audit");
    line_.option("--canaries", o.canaries, "canaries, half of which take part", "N");
    line_.option("--canary-parameter", o.on,
                 "put them on this parameter only, such as conv1.weight", "NAME");
    line_.choice("--score", o.score,
                 "likelihood under the claimed Gaussian, or spread of the releases",
                 {"likelihood", "spread"});
    line_.option("--confidence", o.confidence, "confidence of each bound", "X");
    line_.option("--claimed-epsilon", o.claim, "judge this epsilon instead of the accountant's",
                 "X");
  }

  void add_running() {
    Options& o = options_;
    line_.group("Running");
    line_.option("--ledger", o.ledger,
                 "count the releases in this file, a new one: canaries are units, too; required "
                 "with --data",
                 "FILE");
    line_.option("--report", o.report, "write a page about the audit", "FILE");
    line_.option("--json", o.json, "write the page's contents and all scores as JSON", "FILE");
    line_.add_seed(o.seed, "public randomness: initial weights, drawn digits, canaries' places");
    line_.add_device(o.device);
    line_.add_threads(o.threads);
    line_.flag("--quiet", o.quiet, "print the findings only");
  }

  Options& options_;
  samples::CommandLine line_{
      "Audits private training: trains the network of the sample mnist with canaries, and proves "
      "from what it released how much privacy was lost at least.",
      "The exit status is 0 when no bound is above the claim, 3 when one is, 2 for wrong\n"
      "arguments and 1 for other failures. docs/how-to/audit-a-training.md says what the bounds "
      "mean."};
};

void validate(const Options& o) {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  const auto count = [](std::int64_t n) { return n >= 1 && n <= max_samples; };
  require(count(o.train_size), "--train-size", o.train_size, "a number of samples");
  const bool files = samples::files_of(o.data) != nullptr;
  if (!files)
    samples::check_fits("--train-size", mnist::bytes_of_digit * static_cast<double>(o.train_size));
  require(positive(o.epsilon), "--epsilon", o.epsilon, "a positive number");
  if (o.noise_multiplier) samples::check_noise_multiplier(*o.noise_multiplier);
  require(o.delta > 0 && o.delta < 1, "--delta", o.delta, "between 0 and 1");
  samples::check_clip_bound(o.clip_bound);
  require(positive(o.batch), "--batch-size", o.batch, "a positive number");
  samples::check_memory(o.memory);
  require(count(o.steps), "--steps", o.steps, "a number of steps");
  require(positive(o.learning_rate), "--lr", o.learning_rate, "a positive number");
  require(o.canaries >= 4 && o.canaries <= max_samples, "--canaries", o.canaries, "at least 4");
  require(o.confidence > 0 && o.confidence < 1, "--confidence", o.confidence, "between 0 and 1");
  require(!o.claim || (std::isfinite(*o.claim) && *o.claim >= 0), "--claimed-epsilon",
          o.claim.value_or(0), "a number of 0 or more");
  samples::check_threads(o.threads);
  check(!files || !o.ledger.empty(), "--ledger: is required with --data, whose releases it counts");
}

// The ledger of an audit that failed before its first release may be used.
void check_ledger(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return samples::check_writable("--ledger", path);
  const LedgerContents there = parse_ledger(read_file(path), path).contents;
  check(there.events().empty(),
        "--ledger: {} counts {} releases, and an audit needs a ledger of its own: its canaries are "
        "units, too",
        path, total_releases(there.events()));
  try {
    Ledger::adopt(path, {});
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("--ledger: {}", error.what()));
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  if (!AuditCommandLine(options).parse(argc, argv)) return std::nullopt;
  validate(options);
  samples::check_writable("--report", options.report);
  samples::check_writable("--json", options.json);
  check_ledger(options.ledger);
  samples::check_distinct({options.report, options.json, options.ledger});
  return options;
}

}  // namespace sotto::audit
