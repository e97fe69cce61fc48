#include "dp/engine/training_run.h"

#include <algorithm>

#include "core/ranks/collectives.h"
#include "dp/engine/checkpoint_parts.h"
#include "dp/engine/ordinary_steps.h"
#include "memory/planning/planner.h"
#include "nn/optim/moving_average.h"
#include "nn/optim/optimizer.h"

namespace sotto {

struct TrainingRun::Parts {
  Parts(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
        const TrainOptions& options, const TrainLoss& loss)
      : model(model),
        optimizer(optimizer),
        data(data),
        options(options),
        loss(model, data, memory::device_of(optimizer), options, loss),
        evaluation({memory::device_of(optimizer)}) {}

  EngineOptions engine_options(const Ledger& ledger);
  CheckpointedSteps checkpointed_steps();
  std::optional<StepReport> step();

  nn::Module& model;
  nn::Optimizer& optimizer;
  const Dataset& data;
  const TrainOptions options;
  TrainingLoss loss;
  std::unique_ptr<Engine> engine;           // null: ordinary training
  std::unique_ptr<OrdinarySteps> ordinary;  // null: private training
  memory::PhaseProfiler evaluation;
};

EngineOptions TrainingRun::Parts::engine_options(const Ledger& ledger) {
  EngineOptions all = options.engine;
  if (!all.ranks) all.ranks = ledger.ranks();
  loss.set(all);
  if (!options.standardize) return all;
  const PlannedMeans planned = planned_means(*options.standardize);
  const std::vector<Parameter*> parameters = model.parameters();
  check(std::find(parameters.begin(), parameters.end(), options.standardize->layer->mean.get()) !=
            parameters.end(),
        "train: the layer that standardises is not part of the model");
  all.planned_means.push_back(planned);
  return all;
}

TrainingRun::TrainingRun(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                         const Ledger& ledger, const TrainOptions& options, const TrainLoss& loss)
    : parts_(std::make_unique<Parts>(model, optimizer, data, options, loss)) {
  parts_->engine =
      std::make_unique<Engine>(model, optimizer, data, ledger, parts_->engine_options(ledger));
}

TrainingRun::TrainingRun(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                         NoPrivacy /*no_privacy*/, const TrainOptions& options,
                         const TrainLoss& loss)
    : parts_(std::make_unique<Parts>(model, optimizer, data, options, loss)) {
  check(!options.standardize, "train: standardising releases means with noise, and needs privacy");
  parts_->ordinary = std::make_unique<OrdinarySteps>(model, optimizer, data, options, parts_->loss);
}

TrainingRun::~TrainingRun() = default;

std::optional<StepReport> TrainingRun::Parts::step() {
  if (ordinary) return ordinary->next_step();
  loss.begin_step(engine->steps_made(), [this] { return engine->physical_batch(); });
  return engine->next_step(
      [this](Tape& tape, std::span<const std::int64_t> rows) { return loss(tape, rows); });
}

std::optional<StepReport> TrainingRun::step() {
  const TrainOptions& options = parts_->options;
  const std::int64_t step = steps_made();
  if (engine() != nullptr ? !engine()->can_step() : step >= options.engine.steps)
    return std::nullopt;
  if (options.schedule) parts_->optimizer.follow(*options.schedule, step);
  if (options.learner != nullptr) options.learner->begin_step(step, engine());
  std::optional<StepReport> report = parts_->step();
  if (!report) return std::nullopt;
  if (options.average != nullptr) options.average->update();
  if (options.learner != nullptr) options.learner->end_step(step);
  return report;
}

bool TrainingRun::standardize() {
  Engine* const engine = parts_->engine.get();
  const auto begins = [&] { return engine->steps_made() == 0 && engine->means_released() == 0; };
  if (!parts_->options.standardize || !broadcast(*ranks(), "train: standardize", begins))
    return false;
  sotto::standardize(*engine, parts_->data, *parts_->options.standardize);
  return true;
}

void TrainingRun::evaluate() {
  if (!parts_->options.evaluate) return;
  memory::PhaseProfiler& clock = parts_->ordinary ? parts_->ordinary->phases() : parts_->evaluation;
  clock.enter("evaluation");
  {
    std::optional<nn::MovingAverage::Scope> scope;
    nn::MovingAverage* const average = parts_->options.average;
    if (average != nullptr && average->updates() > 0) scope.emplace(*average);
    parts_->options.evaluate(steps_made());
  }
  clock.stop();
}

CheckpointedSteps TrainingRun::Parts::checkpointed_steps() {
  if (engine) return checkpointed(*engine);
  return {ordinary->ranks(), [this] { return ordinary->state(); },
          [this](const TensorFile& file) { ordinary->load_state(file); }};
}

TensorFile TrainingRun::checkpoint() {
  return checkpoint_file(parts_->checkpointed_steps().state(), parts_->model, parts_->optimizer,
                         parts_->options.average, parts_->options.learner);
}

bool TrainingRun::load(const std::string& path) {
  return load_checkpoint(path, parts_->checkpointed_steps(), parts_->model, parts_->optimizer,
                         parts_->options.average, parts_->options.learner);
}

std::int64_t TrainingRun::steps_made() const {
  return parts_->engine ? parts_->engine->steps_made() : parts_->ordinary->steps_made();
}

const Engine* TrainingRun::engine() const { return parts_->engine.get(); }

const TrainOptions& TrainingRun::options() const { return parts_->options; }

std::shared_ptr<Ranks> TrainingRun::ranks() const {
  return parts_->engine ? parts_->engine->ranks() : parts_->ordinary->ranks();
}

std::vector<memory::PhaseTotal> TrainingRun::phases() const {
  if (parts_->ordinary) return parts_->ordinary->accumulation().phases().totals();
  std::vector<memory::PhaseTotal> all = parts_->engine->phases().totals();
  const auto& own = parts_->evaluation.totals();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

const memory::Plan* TrainingRun::memory_plan() const {
  if (parts_->engine) return parts_->engine->memory_plan();
  const auto& plan = parts_->ordinary->accumulation().plan();
  return plan ? &*plan : nullptr;
}

std::string TrainingRun::captured() const { return parts_->loss.captured(); }

std::int64_t TrainingRun::prefetched_batches() const { return parts_->loss.prefetched_batches(); }

void TrainingObserver::save(const std::string& path, const TensorFile& checkpoint) {
  save_safetensors(path, checkpoint);
}

}  // namespace sotto
