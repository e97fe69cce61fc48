// One model in training, with or without privacy, step by step.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/engine.h"
#include "memory/accumulation.h"
#include "memory/captured_loss.h"
#include "nn/data/batch_loader.h"
#include "nn/optim/moving_average.h"
#include "samples/training/checkpoint.h"
#include "samples/training/task.h"

namespace sotto::samples {

// The results of a step, of several ranks this one's part of them. NOT private: exact functions of
// the training data.
struct StepFacts {
  double loss_sum = 0;    // over rows
  std::int64_t rows = 0;  // samples, or views of them, with a finite loss
  std::int64_t units = 0;
  // Private training only: the norms, and each clip group's bound.
  const ClipStatistics* clipping = nullptr;
  std::vector<double> bounds{};
};

class Trainer {
 public:
  // Private training records releases in the ledger, ordinary training does not use it. The task,
  // the data and the ledger must outlive the trainer. Continues from a checkpoint if given; throws
  // SystemFailure when it does not fit the network or the ledger.
  //
  // On several ranks (null: one) each makes a trainer with the same data, on a ledger by
  // Ledger::on_rank_0, and makes all calls but epsilon() and save_model(), which are rank 0's.
  Trainer(Task& task, const Settings& settings, const Data& data, Ledger& ledger,
          const std::optional<Checkpoint>& resumed, std::shared_ptr<Ranks> ranks = nullptr);

  // Releases the means and deviations that the task's model is to have, before the first step of a
  // private run, if that was not done. Returns the number of columns standardised.
  std::int64_t standardize();
  // Returns nullopt, with nothing released, when all steps are made, and when the target epsilon is
  // spent, by this run or by others of its ledger.
  std::optional<StepFacts> step();
  std::int64_t steps_made() const { return step_; }
  // The task's measure on the test data, with averaged weights if there are any; 0 on other ranks
  // than 0.
  double test_measure() { return measure(data_); }
  // The same on other data's test data.
  double measure(const Data& data);
  // Adds the task's results of those weights to the report; on other ranks nothing.
  void describe(TrainingReport& report);
  // True on the rank that prints and writes.
  bool leads() const { return !ranks_ || ranks_->rank() == 0; }
  // The epsilon spent so far; nullopt without privacy, and on other ranks.
  std::optional<double> epsilon() const;
  // The checkpoint of this moment, without the history of evaluations.
  Checkpoint checkpoint();
  // Saves the weights that test_measure() evaluates, their privacy statement, and the metadata of
  // the task.
  void save_model(const std::string& path);

  Task& task() const { return task_; }
  const Settings& settings() const { return settings_; }
  const Learner* learner() const { return learner_.get(); }  // null without one
  const Engine* engine() const { return engine_.get(); }     // null without privacy
  std::vector<memory::PhaseTotal> phases() const;
  // The number of batches that were made or gathered ahead.
  std::int64_t prefetched_batches() const { return loader_.hits(); }
  // The number of replayed physical batches, and why the last one was not replayed.
  std::string captured() const;
  // The plan that keeps the memory limit; nullopt before the first step and without a limit.
  const memory::Plan* memory_plan() const {
    if (engine_) return engine_->memory_plan();
    return accumulation_.plan() ? &*accumulation_.plan() : nullptr;
  }

 private:
  void make_optimizer();
  void make_engine();
  memory::Accumulation make_accumulation();
  void load(const Checkpoint& checkpoint);
  // This rank's part of a batch.
  std::span<const std::int64_t> own_part(std::span<const std::int64_t> samples) const;
  Tensor test_outputs(const Data& data);
  std::vector<std::int64_t> rows_of(std::span<const std::int64_t> samples) const;
  std::vector<std::int64_t> loader_rows(std::span<const std::int64_t> rows,
                                        std::int64_t step) const;
  Dataset views_of(std::span<const std::int64_t> rows) const;
  Var losses(Tape& tape, std::span<const std::int64_t> rows);
  std::optional<std::int64_t> captured_rows() const;
  std::optional<StepFacts> private_step();
  StepFacts ordinary_step();

  Task& task_;
  Settings settings_;
  const Data& data_;
  Ledger& ledger_;
  std::shared_ptr<Ranks> ranks_;  // null: one process
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<nn::Schedule> schedule_;
  std::unique_ptr<nn::MovingAverage> average_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Engine> engine_;
  ShuffledBatches batches_;
  BatchLoader loader_;
  memory::Accumulation accumulation_;  // for ordinary steps
  std::optional<memory::CapturedLoss> captured_;
  std::int64_t step_ = 0;
};

}  // namespace sotto::samples
