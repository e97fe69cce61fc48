// How a private step is computed within the memory policy's limit: passes, precision, checkpoints
// and rows at once, chosen by dry runs of the step's own code into another clipper, from which
// nothing is released.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dp/engine/unit_batches.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "memory/planning/planner.h"
#include "memory/profiling/phase_profiler.h"

namespace sotto {

class MemoryPlanning {
 public:
  // Computes one physical batch, loss and backward, into the clipper.
  using Run = std::function<void(PhysicalBatch batch, Clipper& clipper, PhaseProfiler& phases)>;

  // All of them outlive it. Sets the clipper's passes and the model's checkpoints, and without a
  // limit the rows of physical batches, as the options say.
  MemoryPlanning(const EngineOptions& options, nn::Module& model, const nn::Optimizer& optimizer,
                 Clipper& clipper, UnitBatches& batches);

  // Chooses the strategy with the least recomputation that keeps the limit, and applies it. Throws
  // std::invalid_argument when there is none.
  void choose(const Run& run);
  // What operations compute in.
  Dtype precision() const { return precision_; }
  // The choice; nothing before choose().
  const std::optional<memory::Plan>& plan() const { return plan_; }

 private:
  void set_rows(std::int64_t rows);
  void set_passes(ClipPasses passes, std::size_t per_sample_grad_budget);
  std::vector<memory::Strategy> strategies(const memory::MemoryRequirement& requirement);

  const EngineOptions& options_;
  nn::Module& model_;
  const nn::Optimizer& optimizer_;
  Clipper& clipper_;
  UnitBatches& batches_;
  Dtype precision_;
  std::optional<memory::Plan> plan_;
};

}  // namespace sotto
