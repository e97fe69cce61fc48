// A model with all that trains it as the settings say, by the library's train().
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/ranks/ranks.h"
#include "dp/engine/training_run.h"
#include "nn/optim/moving_average.h"
#include "samples/training/task.h"

namespace sotto::samples {

class TrainedModel {
 public:
  // The task and the data must outlive it. On several ranks (null: one) each makes one with the
  // same data, and makes all calls but save().
  TrainedModel(Task& task, const Settings& settings, const Data& data,
               std::shared_ptr<Ranks> ranks = nullptr);

  // The options of train(), to which the caller may add files and hooks.
  TrainOptions& options() { return options_; }
  // Calls train(): on this ledger, or without privacy if the settings say so.
  void train(const Ledger& ledger);
  // The training, to be made step by step.
  std::unique_ptr<TrainingRun> run(const Ledger& ledger);

  // Puts averaged weights, if there are any, into the model while it lives.
  std::unique_ptr<nn::MovingAverage::Scope> averaged();
  // The task's measure on the test data, with the weights as they are; 0 on other ranks than 0.
  double measure(const Data& data);
  // Adds the task's results to the report, with averaged weights if there are any.
  void describe(TrainingReport& report);
  // The engine's, with what the task reads without noise.
  PrivacyStatement statement(const Engine& engine) const;
  // Saves the averaged weights, if there are any, with this statement (null: it
  // says that there is no privacy) and the metadata of the task.
  void save(const std::string& path, const Engine* engine);

  Task& task() const { return task_; }
  const Settings& settings() const { return settings_; }
  nn::Module& model() { return *model_.network; }
  const TaskLearner* learner() const { return learner_.get(); }  // null without one

 private:
  Tensor test_outputs(const Data& data);

  Task& task_;
  Settings settings_;
  const Data& data_;
  std::shared_ptr<Ranks> ranks_;  // null: one process
  TaskModel model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::MovingAverage> average_;
  std::unique_ptr<TaskLearner> learner_;
  TrainOptions options_;
  TrainLoss loss_;
};

// Trains without privacy, with the settings of a private training that ordinary training has, the
// task's learning rate for it, and no averaging. Returns the task's measure on the test data. Ends
// early, without a result, when `stop` returns true before a step.
std::optional<double> ordinary_measure(Task& task, const Settings& settings, const Data& data,
                                       const std::function<bool()>& stop,
                                       const std::shared_ptr<Ranks>& ranks);

}  // namespace sotto::samples
