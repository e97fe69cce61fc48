#include "samples/training/trained_model.h"

#include <algorithm>
#include <cmath>

#include "dp/clipping/tuning_groups.h"
#include "dp/engine/training_checkpoint.h"
#include "memory/outputs_of.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "nn/state.h"
#include "samples/report/report.h"

namespace sotto::samples {

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

template <class Rule>
std::unique_ptr<nn::Optimizer> optimizer_of(nn::Module& model, const std::optional<ModelPart>& part,
                                            const Rule& rule) {
  using Made = nn::RuleOptimizer<Rule>;
  if (!part) return std::make_unique<Made>(model, rule);
  const nn::ModelParts parts{.head = part->paths};
  std::vector<typename Made::Group> groups(2, {{}, rule});
  groups[1].rule.learning_rate = part->learning_rate;
  for (const auto& [path, parameter] : model.named_parameters()) {
    if (parameter->trainable) groups[parts.in_head(path) ? 1 : 0].parameters.push_back(parameter);
  }
  std::erase_if(groups, [](const auto& group) { return group.parameters.empty(); });
  return std::make_unique<Made>(groups);
}

std::unique_ptr<nn::Optimizer> make_optimizer(nn::Module& model, const Settings& s,
                                              const std::optional<ModelPart>& part) {
  if (s.optimizer == "adam")
    return optimizer_of(model, part,
                        nn::AdamRule<false>{.learning_rate = s.learning_rate, .beta1 = s.momentum});
  return optimizer_of(model, part,
                      nn::SgdRule{.learning_rate = s.learning_rate, .momentum = s.momentum});
}

std::vector<ClipGroup> clip_groups(nn::Module& model, const Settings& s,
                                   const std::optional<ModelPart>& part) {
  if (s.clip_groups == "layers") return layer_groups(model.named_parameters(), s.clip_bound);
  if (!part || part->clip_bound == 0) return {};
  return tuning_groups(model, {.head = part->paths},
                       {.body = s.clip_bound, .head = part->clip_bound});
}

TaskModel make_model(Task& task, const Settings& settings, const Data& data) {
  nn::manual_seed(settings.seed);
  TaskModel model = task.make_model(data, settings);
  model.network->to(settings.device);
  return model;
}

}  // namespace

TrainedModel::TrainedModel(Task& task, const Settings& settings, const Data& data,
                           std::shared_ptr<Ranks> ranks)
    : task_(task),
      settings_(settings),
      data_(data),
      ranks_(std::move(ranks)),
      model_(make_model(task, settings, data)),
      optimizer_(make_optimizer(*model_.network, settings, model_.own_part)),
      learner_(model_.make_learner ? model_.make_learner(*optimizer_) : nullptr),
      options_{.engine = engine_options(settings)},
      loss_(BatchLoss([this](Tape& tape, const Dataset& batch) {
        return task_.losses(tape, *model_.network, batch);
      })) {
  const auto start =
      settings.average_warmup ? nn::AverageStart::warmup : nn::AverageStart::unbiased;
  if (settings.average)
    average_ = std::make_unique<nn::MovingAverage>(*model_.network, *settings.average, start);
  options_.engine.ranks = ranks_;
  options_.schedule = schedule_of(settings);
  options_.average = average_.get();
  options_.learner = learner_.get();
  options_.capture = settings.capture;
  options_.views = model_.views;
  if (!settings.privacy) return;
  options_.engine.groups = clip_groups(*model_.network, settings, model_.own_part);
  options_.engine.bucket_of_unit = model_.bucket_of_unit;
  options_.standardize = model_.standardize;
  if (options_.standardize) options_.engine.planned_means.clear();  // train() plans them
  if (learner_) learner_->set(options_.engine);
}

void TrainedModel::train(const Ledger& ledger) {
  if (settings_.privacy) {
    sotto::train(*model_.network, *optimizer_, data_.train, ledger, options_, loss_);
  } else {
    sotto::train(*model_.network, *optimizer_, data_.train, NoPrivacy{}, options_, loss_);
  }
}

std::unique_ptr<TrainingRun> TrainedModel::run(const Ledger& ledger) {
  if (settings_.privacy)
    return std::make_unique<TrainingRun>(*model_.network, *optimizer_, data_.train, ledger,
                                         options_, loss_);
  return std::make_unique<TrainingRun>(*model_.network, *optimizer_, data_.train, NoPrivacy{},
                                       options_, loss_);
}

std::unique_ptr<nn::MovingAverage::Scope> TrainedModel::averaged() {
  if (!average_ || average_->updates() == 0) return nullptr;
  return std::make_unique<nn::MovingAverage::Scope>(*average_);
}

Tensor TrainedModel::test_outputs(const Data& data) {
  const auto plain = [this](Tape& tape, const Dataset& part) {
    return (*model_.network)(tape.input(part.inputs));
  };
  return memory::outputs_of(*model_.network, data.test,
                            model_.outputs ? model_.outputs : nn::Forward(plain), ranks_.get());
}

double TrainedModel::measure(const Data& data) {
  const Tensor outputs = test_outputs(data);
  return outputs.defined() ? task_.evaluate(*model_.network, outputs, data, nullptr) : 0;
}

void TrainedModel::describe(TrainingReport& report) {
  const auto scope = averaged();
  const Tensor outputs = test_outputs(data_);
  if (outputs.defined()) task_.evaluate(*model_.network, outputs, data_, &report);
  if (!learner_) return;
  for (const auto& [name, value] : learner_->learned()) report.results.push_back({name, value});
}

PrivacyStatement TrainedModel::statement(const Engine& engine) const {
  PrivacyStatement statement = engine.report();
  const std::vector<std::string> more = taken_as_public(task_.facts());
  statement.not_covered.insert(statement.not_covered.end(), more.begin(), more.end());
  return statement;
}

void TrainedModel::save(const std::string& path, const Engine* engine) {
  const auto scope = averaged();
  std::map<std::string, std::string> metadata = task_.facts().metadata;
  metadata[statement_key] =
      engine != nullptr ? to_json(statement(*engine)) : "\"none: trained with --no-privacy\"";
  if (!model_.saved) return nn::save_module(path, *model_.network, metadata);
  save_safetensors(path, {.tensors = model_.saved(), .metadata = metadata});
}

namespace {

class Stop final : public TrainingObserver {
 public:
  explicit Stop(const std::function<bool()>& stop) : stop_(stop) {}
  bool goes_on() override {
    stopped_ = stop_();
    return !stopped_;
  }
  bool stopped() const { return stopped_; }

 private:
  const std::function<bool()>& stop_;
  bool stopped_ = false;
};

}  // namespace

std::optional<double> ordinary_measure(Task& task, const Settings& settings, const Data& data,
                                       const std::function<bool()>& stop,
                                       const std::shared_ptr<Ranks>& ranks) {
  Settings ordinary = settings;
  ordinary.privacy = false;
  ordinary.train_size = data.train.size();
  ordinary.batch = std::max(1.0, std::round(settings.batch));
  ordinary.learning_rate = task.facts().ordinary_learning_rate;
  ordinary.average.reset();
  if (const auto fit = task.facts().fit_to_data) fit(ordinary);
  TrainedModel model(task, ordinary, data, ranks);
  Stop observer(stop);
  model.options().observer = &observer;
  model.train(Ledger());
  if (observer.stopped()) return std::nullopt;
  return model.measure(data);
}

}  // namespace sotto::samples
