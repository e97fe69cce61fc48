// A training by train() while it runs: its state, and an observer that watches it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "dp/engine/train.h"
#include "memory/profiling/phase_profiler.h"

namespace sotto {

// One model in training, with or without privacy, step by step. train() makes all its steps.
// Collective on several ranks.
class TrainingRun {
 public:
  // Model, optimizer and data must outlive it. Throws where Engine's constructor does.
  TrainingRun(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
              const Ledger& ledger, const TrainOptions& options, const TrainLoss& loss);
  // Without privacy.
  TrainingRun(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data, NoPrivacy,
              const TrainOptions& options, const TrainLoss& loss);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun();

  // Returns nullopt, with nothing released, when all steps are made, and when the target epsilon is
  // spent, by this run or by others of its ledger.
  std::optional<StepReport> step();
  // Releases means and deviations into TrainOptions::standardize's layer, before the first step and
  // once. Returns whether it did.
  bool standardize();
  // TrainOptions::evaluate, with the averaged weights.
  void evaluate();
  // The contents of a training checkpoint, on rank 0.
  TensorFile checkpoint();
  // Continues from the checkpoint (load_checkpoint). Returns whether its checksum was verified.
  bool load(const std::string& path);

  // Steps made so far, those before a checkpoint included.
  std::int64_t steps_made() const;
  // Null without privacy.
  const Engine* engine() const;
  // The options, as given.
  const TrainOptions& options() const;
  // The ranks of the run; a OneRank for one process.
  std::shared_ptr<Ranks> ranks() const;
  // Seconds and bytes of the phases so far, evaluations included.
  std::vector<memory::PhaseTotal> phases() const;
  // The plan that keeps the memory limit; null before the first step and without a limit.
  const memory::Plan* memory_plan() const;
  // With TrainOptions::capture: how many physical batches were replayed, and why not others.
  std::string captured() const;
  // Batches that were made or gathered ahead.
  std::int64_t prefetched_batches() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Watches a training by train(), such as a program that shows its progress, stops it at a signal
// and writes files of its own. On several ranks every call but save() is made on each of them.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // Called once, before the first release of this call of train(); `verified` is load()'s result,
  // false if there was no checkpoint.
  virtual void begins(const TrainingRun& /*run*/, bool /*verified*/) {}
  // Asked before each step. Training ends if it is false on any rank.
  virtual bool goes_on() { return true; }
  // Called after each step. The statistics are those of the rank's own units, and NOT private.
  virtual void stepped(const StepReport& /*report*/) {}
  // Writes a checkpoint to TrainOptions::save. It may add metadata, such as program_key
  // (dp/engine/training_checkpoint.h), and other files. Rank 0's.
  virtual void save(const std::string& path, const TensorFile& checkpoint);
  // Called when a file failed, such as the ledger: no step can follow. It may throw another error.
  virtual void failed(const SystemFailure& /*failure*/) {}
  // Called at the end, with the last checkpoint saved.
  virtual void ends() {}
};

}  // namespace sotto
