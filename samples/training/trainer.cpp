#include "samples/training/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/ops.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/training_checkpoint.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/rank_sink.h"
#include "nn/state.h"
#include "samples/training/evaluation.h"

namespace sotto::samples {

namespace {

std::unique_ptr<nn::Module> make_model(Task& task, const Settings& settings, const Data& data) {
  nn::manual_seed(settings.seed);
  auto model = task.make_model(data, settings.seed);
  model->to(settings.device);
  return model;
}

// A batch as the list of its tensors, for CUDA graphs, and back.
std::vector<Tensor> tensors_of(const Dataset& batch) {
  std::vector<Tensor> tensors{batch.inputs, batch.targets};
  for (const auto& [name, field] : batch.fields) tensors.push_back(field);
  return tensors;
}

Dataset with_tensors(const Dataset& like, const std::vector<Tensor>& tensors) {
  Dataset batch{.inputs = tensors[0], .targets = tensors[1]};
  std::size_t next = 2;
  for (const auto& [name, field] : like.fields) batch.fields[name] = tensors[next++];
  return batch;
}

}  // namespace

Trainer::Trainer(Task& task, const Settings& settings, const Data& data, Ledger& ledger,
                 const std::optional<Checkpoint>& resumed, std::shared_ptr<Ranks> ranks)
    : task_(task),
      settings_(settings),
      data_(data),
      ledger_(ledger),
      ranks_(std::move(ranks)),
      model_(make_model(task, settings, data)),
      batches_(data.train.size(), std::max<std::int64_t>(1, std::llround(settings.batch)),
               settings.seed),
      loader_(task.views() == 0
                  ? BatchLoader(data.train, settings.device)
                  : BatchLoader([this](auto rows) { return views_of(rows); }, settings.device)),
      accumulation_(make_accumulation()) {
  if (ranks_) nn::broadcast_values(*ranks_, model_->parameters());
  make_optimizer();
  learner_ = task.make_learner(*model_, *optimizer_, settings_);
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

// Divides the parameters of a model with a part of its own: the others, and those of the part.
std::array<std::vector<Parameter*>, 2> divided(nn::Module& model, const ModelPart& part) {
  std::array<std::vector<Parameter*>, 2> parts;
  for (const auto& [name, parameter] : model.named_parameters())
    parts.at(name.starts_with(part.prefix) ? 1 : 0).push_back(parameter);
  return parts;
}

template <class Rule>
std::unique_ptr<nn::Optimizer> optimizer_of(nn::Module& model, const std::optional<ModelPart>& part,
                                            const Rule& rule) {
  using Made = nn::RuleOptimizer<Rule>;
  if (!part) return std::make_unique<Made>(model, rule);
  const auto [rest, own] = divided(model, *part);
  Rule own_rule = rule;
  own_rule.learning_rate = part->learning_rate;
  return std::make_unique<Made>(std::vector<typename Made::Group>{{rest, rule}, {own, own_rule}});
}

}  // namespace

void Trainer::make_optimizer() {
  const Settings& s = settings_;
  const std::optional<ModelPart> part = task_.own_part(s);
  if (s.optimizer == "adam") {
    optimizer_ = optimizer_of(
        *model_, part, nn::AdamRule<false>{.learning_rate = s.learning_rate, .beta1 = s.momentum});
  } else {
    optimizer_ = optimizer_of(
        *model_, part, nn::SgdRule{.learning_rate = s.learning_rate, .momentum = s.momentum});
  }
  schedule_ = schedule_of(s);
  const auto start = s.average_warmup ? nn::AverageStart::warmup : nn::AverageStart::unbiased;
  if (s.average) average_ = std::make_unique<nn::MovingAverage>(*model_, *s.average, start);
}

void Trainer::make_engine() {
  EngineOptions options = engine_options(settings_);
  options.prefetch_rows = [this](std::span<const std::int64_t> rows) {
    loader_.prefetch(loader_rows(rows, step_));
  };
  if (task_.views() > 1) {
    options.rows_of_unit = [this](std::int64_t sample) { return rows_of(std::array{sample}); };
    options.mean_of_rows = true;
  }
  if (settings_.clip_groups == "layers")
    options.groups = layer_groups(model_->named_parameters(), settings_.clip_bound);
  if (const std::optional<ModelPart> part = task_.own_part(settings_)) {
    const auto [rest, own] = divided(*model_, *part);
    options.groups = {{rest, settings_.clip_bound}, {own, part->clip_bound}};
  }
  options.ranks = ranks_;
  if (learner_) learner_->set(options);
  engine_ = std::make_unique<Engine>(*model_, *optimizer_, data_.train, ledger_, options);
}

// Private steps do not use it.
memory::Accumulation Trainer::make_accumulation() {
  if (!ranks_ || settings_.privacy) return memory::Accumulation(settings_.memory, *model_);
  return memory::Accumulation(settings_.memory, *model_, *ranks_);
}

void Trainer::load(const Checkpoint& checkpoint) {
  nn::set_parameters(*model_, checkpoint.model, "the checkpoint", nn::OtherTypes::refused);
  optimizer_->load_state(checkpoint.optimizer, model_->named_parameters());
  if (average_) average_->load_state(checkpoint.average);
  if (learner_) learner_->load_state(checkpoint.learner);
  step_ = checkpoint.step;
  if (engine_) {
    engine_->load_state(checkpoint.engine);
    check(engine_->steps_made() == step_, "step {} of an engine at step {}", step_,
          engine_->steps_made());
  } else {
    batches_.seek(checkpoint.position);
  }
}

std::int64_t Trainer::standardize() {
  const auto options = engine_ ? task_.standardize(*model_) : std::nullopt;
  if (!options || step_ > 0 || engine_->means_released() > 0) return 0;
  sotto::standardize(*engine_, data_.train, *options);
  return std::ssize(options->ranges);
}

std::optional<StepFacts> Trainer::step() {
  if (engine_ ? !engine_->can_step() : step_ >= planned_steps(settings_)) return std::nullopt;
  if (schedule_) optimizer_->follow(*schedule_, step_);
  task_.begin_step(*model_, step_, engine_ ? &engine_->clipper() : nullptr);
  if (learner_) learner_->begin_step(step_);
  const std::optional<StepFacts> facts = engine_ ? private_step() : ordinary_step();
  if (!facts) return std::nullopt;
  ++step_;
  if (average_) average_->update();
  if (learner_) learner_->end_step(step_ - 1);
  return facts;
}

// Returns nullopt until the physical batch size is known.
std::optional<std::int64_t> Trainer::captured_rows() const {
  if (engine_) return engine_->physical_batch();
  const auto max = accumulation_.physical_batch();
  if (!max) return std::nullopt;
  const std::int64_t views = std::max<std::int64_t>(1, task_.views());
  return std::min(*max, views * static_cast<std::int64_t>(std::ceil(settings_.batch)));
}

// The rows of samples. With K views of each, row K s + k is view k of sample s.
std::vector<std::int64_t> Trainer::rows_of(std::span<const std::int64_t> samples) const {
  const std::int64_t views = std::max<std::int64_t>(1, task_.views());
  std::vector<std::int64_t> rows;
  for (const std::int64_t sample : samples) {
    for (std::int64_t view = 0; view < views; ++view) rows.push_back(views * sample + view);
  }
  return rows;
}

// The rows of a step for the loader. Views differ from step to step, and not when a part of a step
// is computed again: theirs are numbered over all steps, view v of record r being row v * records +
// r, so that the loader may make those of the next step ahead.
std::vector<std::int64_t> Trainer::loader_rows(std::span<const std::int64_t> rows,
                                               std::int64_t step) const {
  std::vector<std::int64_t> numbers(rows.begin(), rows.end());
  const std::int64_t views = task_.views(), records = data_.train.size();
  if (views == 0) return numbers;
  for (std::int64_t& row : numbers) row = (views * step + row % views) * records + row / views;
  return numbers;
}

// The batch of loader_rows().
Dataset Trainer::views_of(std::span<const std::int64_t> rows) const {
  std::vector<std::int64_t> samples;
  std::vector<RecordView> views;
  for (const std::int64_t row : rows) {
    samples.push_back(row % data_.train.size());
    views.push_back({.record = samples.back(), .view = row / data_.train.size()});
  }
  return task_.view(data_.train.batch(samples), views, settings_.seed);
}

Var Trainer::losses(Tape& tape, std::span<const std::int64_t> rows) {
  const Dataset batch = loader_.batch(loader_rows(rows, step_));
  if (learner_) return learner_->losses(task_.losses(tape, *model_, batch));
  const auto max = settings_.capture ? captured_rows() : std::nullopt;
  if (!max) return task_.losses(tape, *model_, batch);
  if (!captured_) {
    const auto loss = [this](Tape& inner, const std::vector<Tensor>& captured) {
      return task_.losses(inner, *model_, with_tensors(data_.train, captured));
    };
    captured_.emplace(*model_, *max, loss);
  }
  return (*captured_)(tape, tensors_of(batch));
}

std::string Trainer::captured() const {
  if (!captured_) return "nothing";
  const std::string parts = fmt::format("{} physical batches", captured_->replays());
  return captured_->reason().empty() ? parts
                                     : fmt::format("{}; not: {}", parts, captured_->reason());
}

std::optional<StepFacts> Trainer::private_step() {
  std::optional<StepReport> report = engine_->next_step(
      [&](Tape& tape, std::span<const std::int64_t> rows) { return losses(tape, rows); });
  if (!report) return std::nullopt;
  const ClipStatistics& statistics = *report->statistics;
  return StepFacts{statistics.loss_sum, statistics.rows, statistics.units, &statistics,
                   std::move(report->bounds)};
}

std::span<const std::int64_t> Trainer::own_part(std::span<const std::int64_t> samples) const {
  if (!ranks_) return samples;
  const auto rank = static_cast<std::size_t>(ranks_->rank());
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  const std::size_t begin = samples.size() * rank / ranks;
  return samples.subspan(begin, samples.size() * (rank + 1) / ranks - begin);
}

StepFacts Trainer::ordinary_step() {
  memory::PhaseProfiler& clock = accumulation_.phases();
  clock.enter("sample");
  const std::vector<std::int64_t> batch = batches_.next(), next = batches_.peek();
  const std::vector<std::int64_t> rows = rows_of(own_part(batch));
  loader_.prefetch(loader_rows(rows, step_), loader_rows(rows_of(own_part(next)), step_ + 1));
  const memory::Accumulation::Result result = accumulation_.mean_gradient(
      [&](Tape& tape, std::span<const std::int64_t> part) { return losses(tape, part); }, rows,
      *optimizer_, {.seed = settings_.seed, .step = static_cast<std::uint64_t>(step_)});
  clock.enter("update");
  optimizer_->step(result.gradients);
  clock.stop();
  if (!leads()) return {};  // the sum is of all ranks
  const std::int64_t rows_of_all = std::ssize(batch) * std::max<std::int64_t>(1, task_.views());
  return {result.loss_sum, rows_of_all, rows_of_all};
}

double Trainer::measure(const Data& data) {
  accumulation_.phases().enter("evaluation");
  std::optional<nn::MovingAverage::Scope> scope;
  if (average_ && average_->updates() > 0) scope.emplace(*average_);
  const Tensor outputs = test_outputs(data);
  const double measure = leads() ? task_.evaluate(outputs, data) : 0;
  accumulation_.phases().stop();
  return measure;
}

Tensor Trainer::test_outputs(const Data& data) {
  const auto forward = [&](Tape& tape, const Dataset& part) {
    return task_.outputs(tape, *model_, part);
  };
  return outputs_of(*model_, data.test, forward, ranks_.get());
}

void Trainer::describe(TrainingReport& report) {
  std::optional<nn::MovingAverage::Scope> scope;
  if (average_ && average_->updates() > 0) scope.emplace(*average_);
  const Tensor outputs = test_outputs(data_);
  if (leads()) task_.describe(*model_, outputs, data_, report);
  if (!learner_) return;
  for (const auto& [name, value] : learner_->learned()) report.results.push_back({name, value});
}

std::optional<double> Trainer::epsilon() const {
  if (!engine_ || !leads()) return std::nullopt;
  return engine_->epsilon();
}

Checkpoint Trainer::checkpoint() {
  Checkpoint checkpoint{.program = task_.program(),
                        .settings = settings_,
                        .all_settings = all_settings(settings_, task_),
                        .step = step_,
                        .position = batches_.position()};
  if (engine_) {
    if (leads()) checkpoint.ledger = ledger_.position();
    checkpoint.noise_multiplier = engine_->noise_multiplier();
    checkpoint.engine = engine_->state();
  }
  checkpoint.model = nn::parameter_tensors(*model_);
  checkpoint.optimizer = optimizer_->state(model_->named_parameters());
  if (average_) checkpoint.average = average_->state();
  if (learner_) checkpoint.learner = learner_->state();
  return checkpoint;
}

void Trainer::save_model(const std::string& path) {
  std::optional<nn::MovingAverage::Scope> scope;
  if (average_ && average_->updates() > 0) scope.emplace(*average_);
  std::map<std::string, std::string> metadata = task_.metadata();
  metadata[statement_key] =
      engine_ ? to_json(engine_->report()) : "\"none: trained with --no-privacy\"";
  nn::save_module(path, *model_, metadata);
}

std::vector<memory::PhaseTotal> Trainer::phases() const {
  std::vector<memory::PhaseTotal> all;
  if (engine_) all = engine_->phases().totals();
  const auto& own = accumulation_.phases().totals();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

}  // namespace sotto::samples
