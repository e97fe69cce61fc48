// Chooses the strategy of a private step within the memory policy's limit: number of passes,
// precision, activation checkpoints and rows per physical batch. It measures peaks by dry runs of
// the step's own code, with a second clipper whose sums are never released.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/unit_batches.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "memory/planning/planner.h"
#include "memory/profiling/phase_profiler.h"

namespace sotto {

// The parts of a private step that are planned. They must outlive the planning.
struct PlannedParts {
  const EngineOptions& options;
  nn::Module& model;
  const nn::Optimizer& optimizer;
  Clipper& clipper;
  UnitBatches& batches;
};

class MemoryPlanning {
 public:
  // Computes loss and backward of one physical batch and adds it to the clipper.
  using Run =
      std::function<void(PhysicalBatch batch, Clipper& clipper, memory::PhaseProfiler& phases)>;

  // Sets the clipper's passes, the model's activation checkpoints and, without a memory limit, the
  // rows of physical batches, as the options say.
  explicit MemoryPlanning(const PlannedParts& parts);

  // Chooses the strategy with the least recomputation that keeps the limit, and applies it. Throws
  // std::invalid_argument if none does. Collective: all ranks take the fewest rows that fit one of
  // them. Throws std::invalid_argument if their strategies differ, which would round gradients in
  // different ways.
  void choose(const Run& run, Ranks& ranks);
  // The type in which operations compute.
  Dtype precision() const { return precision_; }
  // The chosen strategy; nullopt before choose().
  const std::optional<memory::Plan>& plan() const { return plan_; }

 private:
  std::vector<memory::Strategy> strategies(const memory::MemoryRequirement& requirement);
  void agree(Ranks& ranks);

  PlannedParts parts_;
  Dtype precision_;
  std::optional<memory::Plan> plan_;
};

}  // namespace sotto
