// Times training steps, ordinary and private by every policy and norm method, of the networks in
// samples/models/registry.h and of sized ones (sized_models.h). Prints one JSON line for each case,
// with the keys of the peers' timings (compare_peers.py runs both in turn), and with --profile the
// time by phase.
//
// With --check its model, loss and clipping are checked on at most eight samples before a step is
// timed: the program fails unless their sum is that of the samples alone, each clipped. With
// --write nothing is timed: others compare their own step with what is written (step_check.h).
//
// A step is forward, loss, backward and update by SGD; a private one also samples its batch, clips,
// adds noise to every parameter and writes the ledger, a file. On a GPU the batches are on the
// device, and a step ends when the GPU is done.
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/cuda/cuda_library.h"
#include "core/devices.h"
#include "dp/engine/engine.h"
#include "kernels/profile.h"
#include "kernels/tf32.h"
#include "memory/captured_loss.h"
#include "memory/profiling/phase_profiler.h"
#include "nn/init.h"
#include "nn/models/tuning.h"
#include "nn/optim/optimizer.h"
#include "tests/benchmarks/sized_models.h"
#include "tests/benchmarks/step_check.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;
using nlohmann::json;

namespace {

constexpr std::int64_t population = 50'000;
constexpr double learning_rate = 0.01;
constexpr std::int64_t max_checked_samples = 8;

struct Options {
  std::vector<std::string> models{"logreg", "ffnn", "mnist", "cifar10", "embed", "lstm"};
  std::vector<std::string> modes{"ordinary", "flat"};
  std::vector<std::int64_t> batches{64, 256, 512};
  std::string tuning;  // empty: as the model is made
  double seconds = 2;
  int warmup = 3, min_steps = 5, max_steps = 60;
  double noise_multiplier = 1.1;
  bool profile = false;
  std::string device = "cpu";
  std::string precision = "f32";
  bool capture = false;
  bool check = false;
  std::string write;  // a folder

  bool tf32() const { return precision == "tf32"; }
};

struct Mode {
  const char* name;
  const char* what;
  NormMethod norm_method = NormMethod::automatic;
  ClipPasses passes = ClipPasses::one;
  bool by_layer = false;
};

constexpr Mode private_modes[] = {
    {"flat", "one bound, one backward pass, the norm method chosen by the cost model"},
    {"gram", "one bound, ghost norms (Gram products)", NormMethod::ghost},
    {"rows", "one bound, norms of materialized per-sample gradients", NormMethod::materialize},
    {"two-passes", "one bound, ghost clipping in two backward passes", NormMethod::automatic,
     ClipPasses::two},
    {"layers", "a bound for each parameter", NormMethod::automatic, ClipPasses::one, true},
};

std::string mode_names() {
  std::string names = "ordinary";
  for (const Mode& mode : private_modes) names += fmt::format(", {}: {}", mode.name, mode.what);
  return names;
}

// One training step of a network on one of four random batches.
class Training {
 public:
  Training(const models::Entry& entry, std::int64_t samples, const Options& options)
      : entry_(entry),
        device_(parse_device(options.device)),
        precision_(options.tf32() ? Dtype::f32 : *memory::parse_precision(options.precision)) {
    nn::manual_seed(1);
    model_ = entry.make();
    models::tune(*model_, options.tuning);
    model_->to(device_);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const models::Examples batch = models::examples_for_timing(entry, samples, seed);
      batches_.push_back({batch.inputs.to(device_), batch.labels.to(device_)});
    }
    optimizer_ = std::make_unique<nn::Sgd>(*model_, nn::SgdRule{.learning_rate = learning_rate});
    if (options.capture) captured_.emplace(*model_, samples, loss_);
  }
  virtual ~Training() = default;
  virtual std::vector<memory::PhaseTotal> phases() const = 0;
  // Compares a step's sum over the first samples with that of the samples alone: step_error().
  virtual double error() = 0;

  void step() {
    resident_ = bytes();
    start();
    if (device_ != cpu) cuda_runtime().synchronize(device_.index);
  }
  Device device() const { return device_; }
  // The bytes that the last forward pass left to backward.
  std::size_t kept_bytes() const { return kept_; }
  // The number of weights.
  std::int64_t size() const {
    std::int64_t numbers = 0;
    for (const Parameter* parameter : model_->parameters()) numbers += parameter->value.numel();
    return numbers;
  }
  // Why the last step was not captured; empty if it was, or capture was off.
  std::string not_captured() const { return captured_ ? captured_->reason() : ""; }

 protected:
  virtual void start() = 0;
  Var losses(Tape& tape) {
    const std::vector<Tensor>& batch = batches_[next_++ % batches_.size()];
    Var loss = captured_ ? (*captured_)(tape, batch) : loss_(tape, batch);
    kept_ = bytes() - resident_;
    return loss;
  }

  models::Examples first_samples() const {
    const std::int64_t some = std::min(batches_[0][0].size(0), max_checked_samples);
    return {batches_[0][0].slice(0, 0, some), batches_[0][1].slice(0, 0, some)};
  }

  const models::Entry& entry_;
  Device device_;
  Dtype precision_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;

 private:
  std::size_t bytes() const { return allocator(device_).statistics().current; }
  const memory::CapturedLoss::Loss loss_ = [this](Tape& tape, const std::vector<Tensor>& batch) {
    return entry_.losses((*model_)(tape.input(batch[0])), batch[1]);
  };
  std::optional<memory::CapturedLoss> captured_;
  std::vector<std::vector<Tensor>> batches_;
  std::size_t next_ = 0, resident_ = 0, kept_ = 0;
};

class Ordinary final : public Training {
 public:
  using Training::Training;
  std::vector<memory::PhaseTotal> phases() const override { return clock_.totals(); }
  double error() override {
    return step_error(*model_, entry_, first_samples(), precision_, {}, {}, ClipPasses::one);
  }
  // Returns the loss of what it writes: write_reference().
  double write(const std::string& path) {
    return write_reference(path, *model_, entry_, first_samples(), precision_,
                           EngineOptions().clip_bound);
  }

 private:
  void start() override {
    clock_.enter("forward");
    Tape tape({.precision = precision_});
    const Var loss = losses(tape);
    clock_.enter("backward");
    SumSink sink;
    tape.backward(loss, sink, 1.0 / static_cast<double>(loss.shape()[0]));
    clock_.enter("update");
    optimizer_->step(sink.gradients());
    clock_.stop();
  }

  memory::PhaseProfiler clock_{{device_}};
};

// A temporary folder, removed by the destructor.
class Scratch {
 public:
  Scratch()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("steps-{}", ::getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const char* name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

class Private final : public Training {
 public:
  Private(const models::Entry& entry, std::int64_t samples, const Mode& mode,
          const Options& settings)
      : Training(entry, samples, settings),
        ledger_(Ledger::create(scratch_.file("ledger"),
                               {.relation = NeighboringRelation::replace_one})) {
    EngineOptions options{.noise_multiplier = settings.noise_multiplier,
                          .sampling = Sampling::fixed_size,
                          .logical_batch = static_cast<double>(samples),
                          .memory = {.physical_batch = samples, .precision = precision_},
                          .clipping = {.norm_method = mode.norm_method},
                          .passes = mode.passes};
    groups_ = flat_group(model_->parameters(), options.clip_bound);
    if (mode.by_layer)
      groups_ = options.groups = layer_groups(model_->named_parameters(), options.clip_bound);
    clipping_ = options.clipping;
    passes_ = mode.passes;
    engine_.emplace(*model_, *optimizer_, population, ledger_, options);
  }
  std::vector<memory::PhaseTotal> phases() const override { return engine_->phases().totals(); }
  double error() override {
    return step_error(*model_, entry_, first_samples(), precision_, groups_, clipping_, passes_);
  }

 private:
  void start() override {
    engine_->step([this](Tape& tape, std::span<const std::int64_t>) { return losses(tape); });
  }

  Scratch scratch_;
  Ledger ledger_;
  std::vector<ClipGroup> groups_;
  ClipOptions clipping_;
  ClipPasses passes_ = ClipPasses::one;
  std::optional<Engine> engine_;
};

std::unique_ptr<Training> training(const models::Entry& entry, const std::string& mode,
                                   std::int64_t samples, const Options& options) {
  if (mode == "ordinary") return std::make_unique<Ordinary>(entry, samples, options);
  for (const Mode& known : private_modes) {
    if (mode == known.name) return std::make_unique<Private>(entry, samples, known, options);
  }
  fail(fmt::format("no mode is called {}; known modes are {}", mode, mode_names()));
}

json kernels_of(Training& run, int steps) {
  KernelProfile profile;
  for (int k = 0; k < steps; ++k) run.step();
  json kernels = json::array();
  for (const KernelTotal& total : profile.totals()) {
    kernels.push_back({{"kernel", total.name},
                       {"shapes", total.shapes},
                       {"calls", total.calls / steps},
                       {"ms", total.seconds * 1e3 / steps},
                       {"gflops_per_s", total.flops / total.seconds * 1e-9},
                       {"gbytes_per_s", total.bytes / total.seconds * 1e-9},
                       {"flops", total.flops / steps},
                       {"bytes", total.bytes / steps}});
  }
  return kernels;
}

// Milliseconds of each phase in a step, between two readings of the clock.
json phases_of(const std::vector<memory::PhaseTotal>& before,
               const std::vector<memory::PhaseTotal>& after) {
  json phases;
  for (std::size_t k = 0; k < after.size(); ++k) {
    const auto steps = static_cast<double>(after[k].entries - before[k].entries);
    phases[after[k].name] = (after[k].seconds - before[k].seconds) / steps * 1e3;
  }
  return phases;
}

double checked_error(Training& run, const models::Entry& entry, const std::string& mode,
                     const Options& options) {
  const double error = run.error(), max = options.precision == "f32" ? 0.01 : 0.05;
  check(error <= max, "{} {}: a step is {:.3g} of its length from its samples' own, not {}",
        entry.name, mode, error, max);
  return error;
}

std::vector<double> times_of(Training& run, const Options& options) {
  std::vector<double> times;
  for (double spent = 0; std::ssize(times) < options.min_steps ||
                         (spent < options.seconds && std::ssize(times) < options.max_steps);
       spent += times.back()) {
    times.push_back(seconds_of([&] { run.step(); }));
  }
  return times;
}

// The medians of the first and of the second half: two measurements.
json medians_of_halves(const std::vector<double>& times) {
  const auto middle = times.begin() + (std::ssize(times) + 1) / 2;
  const std::vector<double> first(times.begin(), middle), second(middle, times.end());
  return {median(first) * 1e3, median(second.empty() ? first : second) * 1e3};
}

json timed(const models::Entry& entry, const std::string& mode, std::int64_t samples,
           const Options& options) {
  const std::unique_ptr<Training> run = training(entry, mode, samples, options);
  json line{{"model", entry.name},      {"mode", mode},
            {"tuning", options.tuning}, {"batch", samples},
            {"device", options.device}, {"precision", options.precision},
            {"parameters", run->size()}};
  if (options.check) line["step_error"] = checked_error(*run, entry, mode, options);
  const std::size_t resident = allocator(run->device()).statistics().current;
  for (int k = 0; k < options.warmup; ++k) run->step();
  const std::vector<memory::PhaseTotal> before = run->phases();
  const std::clock_t start = std::clock();
  const std::vector<double> times = times_of(*run, options);
  const double busy = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::size_t peak = 0;
  for (const memory::PhaseTotal& phase : run->phases()) peak = std::max(peak, phase.peak_bytes[0]);
  line.update({{"ms_per_step", median(times) * 1e3},
               {"ms_halves", medians_of_halves(times)},
               {"ms_min", *std::min_element(times.begin(), times.end()) * 1e3},
               {"cpu_ms_per_step", busy / static_cast<double>(times.size()) * 1e3},
               {"steps", times.size()},
               {"peak_bytes", peak},
               {"resident_bytes", resident},
               {"kept_bytes", run->kept_bytes()},
               {"phases_ms", phases_of(before, run->phases())}});
  if (options.capture) line["not_captured"] = run->not_captured();
  if (options.profile) line["kernels"] = kernels_of(*run, options.min_steps);
  return line;
}

json written(const models::Entry& entry, const Options& options) {
  std::filesystem::create_directories(options.write);
  const std::string path =
      std::filesystem::path(options.write) / fmt::format("{}.safetensors", entry.name);
  Ordinary training(entry, max_checked_samples, options);
  const double loss = training.write(path);
  return {{"model", entry.name}, {"parameters", training.size()}, {"loss", loss}, {"file", path}};
}

int run(const Options& options) {
  check(!options.tf32() || options.device != "cpu", "--precision tf32: the CPU rounds no factors");
  use_tf32(options.tf32());
  check(!options.profile || options.device == "cpu",
        "--profile: times of kernels are measured on the CPU only, not on {}", options.device);
  check(options.write.empty() || !options.tf32(), "--write: nothing is written in tf32");
  for (const std::string& model : options.models) {
    const models::Entry entry = models::entry_of_any(model);
    if (!options.write.empty()) {
      std::cout << written(entry, options).dump() << std::endl;
      continue;
    }
    for (const std::int64_t batch : options.batches) {
      for (const std::string& mode : options.modes)
        std::cout << timed(entry, mode, batch, options).dump() << std::endl;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times training steps, ordinary and private; one JSON line for each case");
  app.add_option("--models", options.models,
                 fmt::format("{}; {}", models::model_names(), models::sized_names))
      ->delimiter(',');
  app.add_option("--modes", options.modes, mode_names())->delimiter(',');
  app.add_option(
      "--tune", options.tuning,
      fmt::format("The parts of a pretrained model that are trained: {}", nn::tuning_texts));
  app.add_option("--batches", options.batches, "Samples in a step")->delimiter(',');
  app.add_option("--seconds", options.seconds, "Timed work to aim for in each case");
  app.add_option("--warmup", options.warmup, "Steps before the timed ones, at least one")
      ->check(CLI::PositiveNumber);
  app.add_option("--min-steps", options.min_steps, "Timed steps at least");
  app.add_option("--max-steps", options.max_steps, "Timed steps at most");
  app.add_option("--sigma", options.noise_multiplier, "Noise multiplier");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N; default: cpu");
  app.add_option("--precision", options.precision,
                 "f32, tf32 (on a GPU), bf16 or f16; default: f32")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}));
  app.add_flag("--capture", options.capture,
               "Forward and backward are captured and replayed (on a GPU)");
  app.add_flag("--check", options.check,
               "Compares the sums of at most eight samples with those of the samples alone before");
  app.add_option("--write", options.write,
                 "A folder for weights, eight samples and their gradients: nothing is timed");
  app.add_flag("--profile", options.profile,
               "As many more steps as --min-steps, with the time of each kernel");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::cerr << "steps: " << error.what() << "\n";
    return 1;
  }
}
