// The steps of ordinary training by train(): batches of the shuffled samples, and the gradient of
// their mean loss.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/io/safetensors.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/engine/training_loss.h"
#include "memory/accumulation.h"

namespace sotto {

class OrdinarySteps {
 public:
  // The arguments must outlive it. On several ranks the constructor and all calls are collective;
  // each rank computes its part of a batch.
  OrdinarySteps(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                const TrainOptions& options, TrainingLoss& loss);

  // Returns nullopt when all steps are made. The statistics, on rank 0, are the loss's and the
  // numbers of rows; there are no norms.
  std::optional<StepReport> next_step();
  std::int64_t steps_made() const { return step_; }
  // For a checkpoint: the steps made, and where the next batch begins.
  TensorFile state() const;
  // Continues from rank 0's state. Throws std::invalid_argument for another file.
  void load_state(const TensorFile& file);
  const std::shared_ptr<Ranks>& ranks() const { return ranks_; }
  const memory::Accumulation& accumulation() const { return accumulation_; }
  memory::PhaseProfiler& phases() { return accumulation_.phases(); }

 private:
  std::vector<std::int64_t> own_rows(std::span<const std::int64_t> samples) const;
  std::optional<std::int64_t> max_rows() const;

  nn::Optimizer& optimizer_;
  const EngineOptions& options_;
  TrainingLoss& loss_;
  std::shared_ptr<Ranks> ranks_;
  std::int64_t batch_;  // samples
  ShuffledBatches batches_;
  memory::Accumulation accumulation_;
  std::int64_t step_ = 0;
  ClipStatistics statistics_;
};

}  // namespace sotto
