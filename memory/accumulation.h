// Ordinary training on batches of any size: the gradient of the mean loss, computed in physical
// batches. (dp/engine/engine.h does this for private training.)
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "autograd/tape.h"
#include "core/ranks/one_rank.h"
#include "memory/loss_scale.h"
#include "memory/physical_batches.h"
#include "memory/planning/planner.h"
#include "memory/planning/policy.h"
#include "memory/profiling/phase_profiler.h"
#include "nn/optim/optimizer.h"

namespace sotto::memory {

// Computes gradients of logical batches within a memory policy. Use it for ordinary training on
// batches that do not fit at once.
//
//   memory::Accumulation accumulation({.physical_batch = 32}, model);
//   const auto result = accumulation.mean_gradient(loss, rows, optimizer);
//   optimizer.step(result.gradients);
class Accumulation {
 public:
  // Returns one loss for each row, [rows], on the given tape.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;
  struct Result {
    // The gradients of the mean loss; empty for an f16 step that is skipped because one overflowed.
    Gradients gradients;
    double loss_sum = 0;      // of all ranks
    bool overflowed = false;  // true for such a step
  };

  // Throws std::invalid_argument for a policy that is out of range, and for one with activation
  // checkpoints, which need the other constructor's model.
  explicit Accumulation(const Policy& policy) : Accumulation(policy, nullptr) {}
  // `model` computes the loss and must outlive this object. Its activation checkpoints are those of
  // the policy (set_checkpoints), or planned if the policy leaves them unset.
  Accumulation(const Policy& policy, nn::Module& model) : Accumulation(policy, &model) {}
  // Data parallelism: mean_gradient() gets each rank's rows, and returns the mean over the ranks'
  // concatenated rows: the same bits on every rank, and one process's result up to rounding. A rank
  // may have no rows. The ranks outlive this object. Throws std::invalid_argument for a policy that
  // leaves open in which precision to compute, since ranks might choose differently.
  Accumulation(const Policy& policy, nn::Module& model, Ranks& ranks);
  // For losses of parameters that are not the model's: mean_gradient() returns the gradients of
  // those `parameters` that are trainable at its call. The model may be null, as in the first
  // constructor. All arguments must outlive this object.
  Accumulation(const Policy& policy, nn::Module* model, std::vector<Parameter*> parameters,
               Ranks& ranks);

  // Returns the rows' losses and the gradient of their mean. Each physical batch has its own tape,
  // with the given options and the policy's precision, that numbers rows as one tape for all would.
  // Options with the precision f64 keep it; physical batches that the policy makes are then smaller
  // by as much as numbers are longer. In f16 the loss is scaled (LossScaling::Adjust::on_overflow).
  // When memory runs out, computation continues with smaller physical batches, down to a single
  // row. With a limit, the first call plans how to keep it, leaving memory for the optimizer's
  // update; it throws std::invalid_argument, with the bytes, when not even one row fits.
  Result mean_gradient(const Loss& loss, std::span<const std::int64_t> rows,
                       const nn::Optimizer& optimizer, const TapeOptions& options = {});

  // A physical batch: rows first .. end - 1.
  using Run = std::function<void(Tape& tape, std::int64_t first, std::int64_t end)>;
  // Calls run(tape, first, end) for each physical batch of a batch of `rows` rows, in order, with a
  // tape as mean_gradient() makes it. When memory runs out the call is repeated with fewer rows: it
  // must not have changed anything. Throws std::invalid_argument if a limit has no plan yet.
  void over(std::int64_t rows, const nn::Optimizer& optimizer, const TapeOptions& options,
            const Run& run);
  // The sums over ranks of gradients that each rank computed by itself; without ranks, `own`. All
  // ranks call it, with the same parameters trainable.
  Gradients sum_over_ranks(const Gradients& own) const;

  // The maximum number of rows computed at once; nullopt before the first call with a limit.
  std::optional<std::int64_t> physical_batch() const;
  // The plan that keeps the limit; nullopt before the first call and without a limit.
  const std::optional<Plan>& plan() const { return plan_; }
  // The loss scale of the next call.
  const LossScale& loss_scale() const { return loss_scale_; }
  // Continues the loss scale of a saved training (LossScale::resume()).
  void resume_loss_scale(double value, std::int64_t good_steps) {
    loss_scale_.resume(value, good_steps);
  }
  // The phases "forward" and "backward"; the caller may enter further ones.
  PhaseProfiler& phases() { return phases_; }
  // Seconds and bytes of the phases so far.
  const PhaseProfiler& phases() const { return phases_; }

 private:
  struct Batch;
  Accumulation(const Policy& policy, nn::Module* model);
  std::vector<Strategy> strategies(const MemoryRequirement& requirement);
  void over_parts(std::int64_t rows, const TapeOptions& options, const PhysicalBatches::Run& run,
                  const PhysicalBatches::Lost& lost);
  // True if the loss has no scale.
  bool unscaled(const TapeOptions& options) const;
  // The options of the tape for rows first .. end - 1.
  TapeOptions part_of(const TapeOptions& options, std::int64_t first, std::int64_t end) const;
  double add_physical_batch(const Batch& batch, std::int64_t first, std::int64_t end,
                            GradSink& sink, PhaseProfiler& phases) const;
  void make_plan(const Batch& batch, const nn::Optimizer& optimizer);
  Batch share_of(const Loss& loss, std::span<const std::int64_t> rows,
                 const TapeOptions& options) const;

  Policy policy_;
  nn::Module* model_;                   // null: activation checkpoints cannot be set
  std::vector<Parameter*> parameters_;  // that ranks sum gradients of
  std::shared_ptr<Ranks> ranks_ = std::make_shared<OneRank>();
  Dtype precision_;
  LossScale loss_scale_;
  std::optional<PhysicalBatches> parts_;
  std::optional<Plan> plan_;
  PhaseProfiler phases_;
};

}  // namespace sotto::memory
