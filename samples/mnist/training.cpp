#include "samples/mnist/training.h"

#include <algorithm>
#include <cmath>

#include <sotto/autograd/ops.h>
#include <sotto/core/threads/parallel.h>
#include <sotto/dp/clipping/clipper.h>
#include <sotto/dp/engine/training_checkpoint.h>
#include <sotto/kernels/tensor_ops/tensor_ops.h>
#include <sotto/nn/data/digits.h>
#include <sotto/nn/data/idx.h>
#include <sotto/nn/init.h>
#include <sotto/nn/optim/optimizer.h>
#include <sotto/nn/state.h>

namespace sotto::mnist {

namespace {

// Mean and standard deviation of MNIST's training pixels, as published.
constexpr float pixel_mean = 0.1307F;
constexpr float pixel_deviation = 0.3081F;
constexpr std::int64_t evaluation_batch = 500;
constexpr std::int64_t pixel_grain = 1 << 16;

void normalize(const Tensor& images) {
  auto* const pixels = images.data<float>();
  parallel_for(images.numel(), pixel_grain, [pixels](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      pixels[k] = (pixels[k] - pixel_mean) / pixel_deviation;
  });
}

models::MnistNetwork make_network(const Settings& settings) {
  nn::manual_seed(settings.seed);
  models::MnistNetwork network(settings.activation);
  network.to(settings.device);
  return network;
}

}  // namespace

Data load_data(Settings& settings) {
  Data data;
  if (settings.data.empty()) {
    // Both sets are parts of one endless set; the test set is the first part, so that it does not
    // depend on the size of the training set.
    data.test = make_digits(settings.test_size, settings.seed);
    data.train = make_digits(settings.train_size, settings.seed, settings.test_size);
  } else {
    data.train = read_mnist(settings.data, true, settings.train_size);
    data.test = read_mnist(settings.data, false, settings.test_size);
    settings.train_size = data.train.size();
    settings.test_size = data.test.size();
  }
  if (settings.normalize) {
    normalize(data.train.inputs);
    normalize(data.test.inputs);
  }
  return data;
}

Trainer::Trainer(const Settings& settings, const Data& data, Ledger& ledger,
                 const std::optional<Checkpoint>& resumed)
    : settings_(settings),
      data_(data),
      ledger_(ledger),
      model_(make_network(settings)),
      batches_(data.train.size(), std::max<std::int64_t>(1, std::llround(settings.batch)),
               settings.seed),
      loader_(data.train, settings.device),
      accumulation_(settings.memory, model_) {
  make_optimizer();
  if (settings.privacy) make_engine();
  if (!resumed) return;
  try {
    load(*resumed);
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(std::string("the checkpoint does not fit: ") + error.what());
  }
}

namespace {

// The learning-rate schedule; nullopt if the rate is constant. A run that is shorter than the
// warmup only warms up.
std::optional<nn::Schedule> schedule_of(const Settings& s) {
  using nn::Schedule;
  const std::int64_t steps = planned_steps(s);
  if (s.warmup > 0 && (s.schedule == "constant" || s.warmup >= steps))
    return Schedule::warmup_linear(s.warmup);
  const bool rises = s.warmup > 0;
  if (s.schedule == "linear")
    return rises ? Schedule::warmup_linear_decay(s.warmup, steps) : Schedule::linear(1, 0, steps);
  if (s.schedule == "cosine")
    return rises ? Schedule::warmup_cosine(s.warmup, steps) : Schedule::cosine(steps);
  return std::nullopt;
}

}  // namespace

void Trainer::make_optimizer() {
  const Settings& s = settings_;
  if (s.optimizer == "adam") {
    optimizer_ = std::make_unique<nn::Adam>(
        model_, nn::AdamRule<false>{.learning_rate = s.learning_rate, .beta1 = s.momentum});
  } else {
    optimizer_ = std::make_unique<nn::Sgd>(
        model_, nn::SgdRule{.learning_rate = s.learning_rate, .momentum = s.momentum});
  }
  schedule_ = schedule_of(s);
  if (s.average) average_ = std::make_unique<nn::MovingAverage>(model_, *s.average);
}

void Trainer::make_engine() {
  EngineOptions options = engine_options(settings_);
  options.prefetch_rows = [this](std::span<const std::int64_t> rows) { loader_.prefetch(rows); };
  if (settings_.clip_groups == "layers")
    options.groups = layer_groups(model_.named_parameters(), settings_.clip_bound);
  engine_ = std::make_unique<Engine>(model_, *optimizer_, data_.train.size(), ledger_, options);
}

void Trainer::load(const Checkpoint& checkpoint) {
  nn::set_parameters(model_, checkpoint.model, "the checkpoint");
  optimizer_->load_state(checkpoint.optimizer, model_.named_parameters());
  if (average_) average_->load_state(checkpoint.average);
  step_ = checkpoint.step;
  if (engine_) {
    engine_->load_state(checkpoint.engine);
    check(engine_->steps_made() == step_, "step {} of an engine at step {}", step_,
          engine_->steps_made());
  } else {
    batches_.seek(checkpoint.position);
  }
}

bool Trainer::can_step() const {
  return engine_ ? engine_->can_step() : step_ < planned_steps(settings_);
}

StepFacts Trainer::step() {
  if (schedule_) optimizer_->follow(*schedule_, step_);
  const StepFacts facts = engine_ ? private_step() : ordinary_step();
  ++step_;
  if (average_) average_->update();
  return facts;
}

Var Trainer::loss_of(Tape& tape, const std::vector<Tensor>& batch) {
  return cross_entropy(model_(tape.input(batch[0])), batch[1]);
}

// Returns nullopt until the physical batch size is known.
std::optional<std::int64_t> Trainer::captured_rows() const {
  if (engine_) return engine_->physical_batch();
  const auto max = accumulation_.physical_batch();
  if (!max) return std::nullopt;
  return std::min(*max, static_cast<std::int64_t>(std::ceil(settings_.batch)));
}

Var Trainer::losses(Tape& tape, std::span<const std::int64_t> rows) {
  const Dataset data = loader_.batch(rows);
  const std::vector<Tensor> batch{data.inputs, data.targets};
  const auto max = settings_.capture ? captured_rows() : std::nullopt;
  if (!max) return loss_of(tape, batch);
  if (!captured_) {
    captured_.emplace(model_, *max, [this](Tape& inner, const std::vector<Tensor>& captured) {
      return loss_of(inner, captured);
    });
  }
  return (*captured_)(tape, batch);
}

std::string Trainer::captured() const {
  if (!captured_) return "nothing";
  const std::string parts = fmt::format("{} physical batches", captured_->replays());
  return captured_->reason().empty() ? parts
                                     : fmt::format("{}; not: {}", parts, captured_->reason());
}

StepFacts Trainer::private_step() {
  std::vector<double> bounds;
  for (const ClipGroup& group : engine_->clipper().groups()) bounds.push_back(group.bound);
  const StepReport report = engine_->step(
      [&](Tape& tape, std::span<const std::int64_t> rows) { return losses(tape, rows); });
  return {report.statistics->loss_sum, report.statistics->units, report.statistics,
          std::move(bounds)};
}

StepFacts Trainer::ordinary_step() {
  PhaseProfiler& clock = accumulation_.phases();
  clock.enter("sample");
  const std::vector<std::int64_t> rows = batches_.next();
  loader_.prefetch(rows, batches_.peek());
  const memory::Accumulation::Result result = accumulation_.mean_gradient(
      [&](Tape& tape, std::span<const std::int64_t> part) { return losses(tape, part); }, rows,
      *optimizer_, {.seed = settings_.seed, .step = static_cast<std::uint64_t>(step_)});
  clock.enter("update");
  optimizer_->step(result.gradients);
  clock.stop();
  return {result.loss_sum, std::ssize(rows)};
}

double Trainer::test_accuracy() {
  accumulation_.phases().enter("evaluation");
  std::optional<nn::MovingAverage::Scope> scope;
  if (average_ && average_->updates() > 0) scope.emplace(*average_);
  const double accuracy = correct() / static_cast<double>(data_.test.size());
  accumulation_.phases().stop();
  return accuracy;
}

double Trainer::correct() {
  std::int64_t count = 0;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const Dataset batch = data_.test.slice(begin, end);
    Tape tape({.training = false});
    const Tensor found = argmax(model_(tape.input(batch.inputs.to(settings_.device))).value());
    const auto ours = found.to_vector<std::int64_t>();
    const auto theirs = batch.targets.to_vector<std::int64_t>();
    for (std::size_t k = 0; k < ours.size(); ++k) count += ours[k] == theirs[k] ? 1 : 0;
  };
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(data_.test.size()), 1);
  memory::PhysicalBatches(evaluation_batch).over(rows, run, [] { return false; });
  return static_cast<double>(count);
}

std::optional<double> Trainer::epsilon() const {
  if (!engine_) return std::nullopt;
  return engine_->epsilon();
}

Checkpoint Trainer::checkpoint() {
  Checkpoint checkpoint{.settings = settings_, .step = step_, .position = batches_.position()};
  if (engine_) {
    checkpoint.ledger = ledger_.position();
    checkpoint.noise_multiplier = engine_->noise_multiplier();
    checkpoint.engine = engine_->state();
  }
  checkpoint.model = nn::parameter_tensors(model_);
  checkpoint.optimizer = optimizer_->state(model_.named_parameters());
  if (average_) checkpoint.average = average_->state();
  return checkpoint;
}

void Trainer::save_model(const std::string& path) {
  std::optional<nn::MovingAverage::Scope> scope;
  if (average_ && average_->updates() > 0) scope.emplace(*average_);
  if (engine_) return sotto::save_model(path, model_, engine_->report());
  nn::save_module(path, model_, {{statement_key, "\"none: trained with --no-privacy\""}});
}

std::vector<PhaseTotal> Trainer::phases() const {
  std::vector<PhaseTotal> all;
  if (engine_) all = engine_->phases().totals();
  const auto& own = accumulation_.phases().totals();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

}  // namespace sotto::mnist
