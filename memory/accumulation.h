// Ordinary training on batches of any size: the gradient of the mean loss, computed in physical
// batches. (Private training does the same in dp/engine/engine.h.)
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "autograd/tape.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "memory/loss_scale.h"
#include "memory/physical_batches.h"
#include "memory/planning/planner.h"
#include "memory/planning/policy.h"
#include "memory/profiling/phase_profiler.h"
#include "nn/optim/optimizer.h"

namespace sotto::memory {

class Accumulation {
 public:
  // One loss for each row, [rows], on the given tape.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;
  struct Result {
    // Of the mean of all losses; empty for a step that is left out because, in f16, one overflowed.
    Gradients gradients;
    double loss_sum = 0;
  };

  // Throws std::invalid_argument for a policy that is out of range, and for checkpoints, which are
  // a model's.
  explicit Accumulation(const Policy& policy) : Accumulation(policy, nullptr) {}
  // Of the model whose loss is computed, which must outlive this: sets its checkpoints as the
  // policy says (set_checkpoints), and plans them where the policy leaves them open.
  Accumulation(const Policy& policy, nn::Module& model) : Accumulation(policy, &model) {}

  // The rows' losses and the gradient of their mean. Each part has a tape with the options and the
  // policy's precision, on which rows are numbered as in one with all of them. In f16 the losses
  // are scaled by what does not overflow (LossScaling::Adjust::on_overflow). When memory runs out
  // it goes on in smaller parts, down to a single row. With a limit the first call plans how to
  // keep it, with room for the optimizer's update; throws std::invalid_argument, with bytes, when
  // not even one row does.
  Result mean_gradient(const Loss& loss, std::span<const std::int64_t> rows,
                       const nn::Optimizer& optimizer, const TapeOptions& options = {});

  // The most rows that are computed at once; nothing before they were found.
  std::optional<std::int64_t> physical_batch() const;
  // How the limit is kept; nothing before the first call or without one.
  const std::optional<Plan>& plan() const { return plan_; }
  const LossScale& loss_scale() const { return loss_scale_; }
  // "forward" and "backward"; others may be entered.
  PhaseProfiler& phases() { return phases_; }
  const PhaseProfiler& phases() const { return phases_; }

 private:
  // A logical batch.
  struct Batch {
    const Loss& loss;
    std::span<const std::int64_t> rows;
    const TapeOptions& options;
  };
  Accumulation(const Policy& policy, nn::Module* model);
  std::vector<Strategy> strategies(const MemoryRequirement& requirement);
  double add_physical_batch(const Batch& batch, std::int64_t first, std::int64_t end,
                            GradSink& sink, PhaseProfiler& phases) const;
  void make_plan(const Batch& batch, const nn::Optimizer& optimizer);

  Policy policy_;
  nn::Module* model_;  // none: nothing is known of it
  Dtype precision_;
  LossScale loss_scale_;
  std::optional<PhysicalBatches> parts_;
  std::optional<Plan> plan_;
  PhaseProfiler phases_;
};

}  // namespace sotto::memory
