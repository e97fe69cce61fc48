#include "samples/audit/run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <optional>

#include "autograd/ops.h"
#include "core/join.h"
#include "core/random/philox.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/audit/canaries.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/training_run.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"
#include "memory/physical_batches.h"
#include "nn/data/batch_loader.h"
#include "nn/data/digits.h"
#include "nn/data/idx.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "samples/cli/program.h"
#include "samples/cli/progress.h"
#include "samples/models/models.h"

namespace sotto::audit {

namespace {

// The norm of a canary's gradient over the clip bound: large, so that a bound that is not kept
// shows.
constexpr double magnitude_over_bound = 100;
// the Philox stream of the attacker's reference samples
constexpr std::uint64_t reference_stream = 1;

models::MnistNetwork make_network(const Options& options) {
  nn::manual_seed(options.seed);
  models::MnistNetwork network;
  network.to(options.device);
  return network;
}

Ledger ledger_of(const Options& options) {
  if (options.ledger.empty()) return Ledger();
  return std::filesystem::exists(options.ledger) ? Ledger::adopt(options.ledger, {})
                                                 : Ledger::create(options.ledger, {});
}

std::vector<Parameter*> canary_parameters(nn::Module& model, const std::string& wanted) {
  if (wanted.empty()) return model.parameters();
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (name == wanted) return {parameter};
    names.push_back(name);
  }
  fail(fmt::format("--canary-parameter: {} is not one of {}", wanted, join(names, ", ")));
}

constexpr const char* row_field = "row";

// The data, and a row for each canary, with the numbers of all rows in a field.
Dataset with_canaries(const Dataset& data, const DiracCanaries& canaries) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(canaries.units()));
  std::iota(rows.begin(), rows.end(), 0);
  Dataset all = data.batch(canaries.data_rows(rows));
  all.fields[row_field] = Tensor::from(rows, {canaries.units()});
  return all;
}

// Trains, and sees as an attacker what each step does to the canaries.
class Run final : public TrainingObserver {
 public:
  Run(const Options& options, const Dataset& data)
      : options_(checked(options, data)),
        data_(data),
        loader_(data, options.device),
        model_(make_network(options)),
        optimizer_(model_, {.learning_rate = options.learning_rate}),
        canaries_(canary_parameters(model_, options.on),
                  {.count = options.canaries,
                   .population = data.size(),
                   .magnitude = magnitude_over_bound * options.clip_bound,
                   .seed = options.seed}),
        ledger_(ledger_of(options)),
        reference_(flat_group(model_.parameters(), options.clip_bound)),
        random_(options.seed, reference_stream) {}

  AuditFindings find();
  void begins(const TrainingRun& run, bool verified) override;
  bool goes_on() override;
  void stepped(const StepReport& report) override;
  void ends() override;

 private:
  static const Options& checked(const Options& options, const Dataset& data) {
    const auto units = static_cast<double>(data.size() + options.canaries);
    check(options.batch <= units, "--batch-size: {} of {} samples and {} canaries", options.batch,
          data.size(), options.canaries);
    return options;
  }
  EngineOptions engine_options();
  Var loss(Tape& tape, const Dataset& batch, std::span<const std::int64_t> rows);
  std::vector<double> expected();
  double spent() const;
  AuditFindings judged() const;

  Options options_;
  const Dataset& data_;
  BatchLoader loader_;
  models::MnistNetwork model_;
  nn::Sgd optimizer_;
  DiracCanaries canaries_;
  Ledger ledger_;
  const Engine* engine_ = nullptr;  // while it trains
  Clipper reference_;
  PublicRandom random_;
  std::vector<double> others_, before_;  // of the step to come
  CanaryTrace trace_;
  std::optional<samples::Progress> progress_;
  double epsilon_told_ = 0;
  AuditFindings findings_;
};

EngineOptions Run::engine_options() {
  const Options& o = options_;
  const double rate = o.batch / static_cast<double>(canaries_.units());
  const double noise = o.noise_multiplier
                           ? *o.noise_multiplier
                           : calibrate_noise_multiplier(
                                 {.epsilon = o.epsilon,
                                  .delta = o.delta,
                                  .batch = {.sampling = Sampling::poisson, .sampling_rate = rate},
                                  .steps = o.steps});
  return {.noise_multiplier = noise,
          .delta = o.delta,
          .steps = o.steps,
          .logical_batch = o.batch,
          .memory = o.memory,
          .rows_of_unit = [this](std::int64_t unit) { return canaries_.rows_of_unit(unit); },
          .clip_bound = o.clip_bound,
          .seed = o.seed};
}

Var Run::loss(Tape& tape, const Dataset& batch, std::span<const std::int64_t> rows) {
  const Var logits = model_(tape.input(batch.inputs));
  return canaries_.losses(cross_entropy(logits, batch.targets), rows);
}

// The expected contribution of the data to the canaries' elements of the next sum, estimated from a
// random subset as large as a batch: the attacker is assumed to know it.
std::vector<double> Run::expected() {
  const double drawn = engine_->sampler().rate() * static_cast<double>(data_.size());
  const auto rows = std::clamp<std::int64_t>(static_cast<std::int64_t>(drawn), 1, data_.size());
  std::vector<std::int64_t> part(static_cast<std::size_t>(data_.size()));
  std::iota(part.begin(), part.end(), 0);
  random_.shuffle(part);
  loader_.prefetch(std::span(part).first(static_cast<std::size_t>(rows)));
  const auto add = [&](std::int64_t first, std::int64_t end) {
    Tape tape({.private_data = true, .seed = options_.seed});
    const auto physical = std::span(part).subspan(static_cast<std::size_t>(first),
                                                  static_cast<std::size_t>(end - first));
    reference_.add(tape, loss(tape, loader_.batch(physical), physical));
  };
  // The sums of earlier physical batches are discarded and computed once more with the failed one.
  const auto lost = [&] {
    reference_.discard();
    return true;
  };
  const memory::LimitScope limit(options_.memory.limit, options_.device);
  memory::PhysicalBatches(options_.memory.rows())
      .over(std::vector<std::int64_t>(static_cast<std::size_t>(rows), 1), add, lost);
  std::vector<double> sums = canaries_.elements(reference_.clipped_sums());
  reference_.discard();
  for (double& sum : sums) sum *= drawn / static_cast<double>(rows);
  return sums;
}

void Run::begins(const TrainingRun& run, bool /*verified*/) {
  engine_ = run.engine();
  progress_.emplace(samples::Progress::Plan{
      .steps = options_.steps,
      .epochs = static_cast<double>(options_.steps) * engine_->sampler().rate(),
      .batch = options_.batch,
      .quiet = options_.quiet});
  if (options_.quiet) return;
  samples::print(
      "{} samples and {} canaries, noise multiplier {}, sampling rate {:.4g}, {} steps\n",
      data_.size(), canaries_.size(), noise_text(engine_->noise_multiplier()),
      engine_->sampler().rate(), options_.steps);
}

bool Run::goes_on() {
  if (engine_->steps_made() == options_.steps) return true;  // train() ends
  others_ = expected();
  before_ = canaries_.values();
  return true;
}

void Run::stepped(const StepReport& report) {
  std::vector<double> shown = canaries_.values();
  for (std::size_t k = 0; k < shown.size(); ++k) {
    const double mean = (before_[k] - shown[k]) / options_.learning_rate;
    shown[k] = (mean * engine_->sampler().expected_batch_size() - others_[k]) / options_.clip_bound;
  }
  trace_.push_back(std::move(shown));
  const bool tells = report.step % std::max<std::int64_t>(1, options_.steps / 10) == 0;
  const samples::Progress::State state{.step = report.step,
                                       .epsilon = tells ? spent() : epsilon_told_};
  epsilon_told_ = *state.epsilon;
  tells ? progress_->evaluated(state) : progress_->stepped(state);
}

double Run::spent() const {
  PldAccountant accountant;
  for (const auto& [event, count] : ledger_.events()) accountant.compose(event, count);
  return accountant.epsilon(options_.delta);
}

AuditFindings Run::judged() const {
  AuditFindings found{.noise_multiplier = engine_->noise_multiplier(),
                      .sampling_rate = engine_->sampler().rate(),
                      .included = canaries_.included()};
  found.accountant = spent();
  found.claim = options_.claim.value_or(found.accountant);
  found.scores = options_.score == "spread"
                     ? spreads(trace_)
                     : likelihood_ratios(trace_, found.noise_multiplier, found.sampling_rate);
  found.one_run = one_run_audit(found.scores, found.included,
                                {.confidence = options_.confidence, .delta = options_.delta});
  std::vector<double> without, with;
  for (std::size_t k = 0; k < found.scores.size(); ++k)
    (found.included[k] ? with : without).push_back(found.scores[k]);
  found.trade_off = clopper_pearson_audit(
      without, with, {.confidence = options_.confidence, .delta = options_.delta});
  return found;
}

void Run::ends() {
  progress_->clear();
  findings_ = judged();
}

AuditFindings Run::find() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const Dataset all = with_canaries(data_, canaries_);
  const BatchLoss loss_of_batch = [this](Tape& tape, const Dataset& batch) {
    return loss(tape, batch, batch.field(row_field).to(cpu).to_vector<std::int64_t>());
  };
  train(model_, optimizer_, all, ledger_, {.engine = engine_options(), .observer = this},
        loss_of_batch);
  findings_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return findings_;
}

}  // namespace

Dataset load_data(const Options& options) {
  if (const samples::Files* const files = samples::files_of(options.data))
    return read_mnist(files->train, true, options.train_size);
  return make_digits(options.train_size, options.seed);
}

AuditFindings run(const Options& options, const Dataset& data) { return Run(options, data).find(); }

}  // namespace sotto::audit
