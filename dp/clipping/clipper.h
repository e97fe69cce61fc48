// Clipping: from per-sample gradients to a sum with a known sensitivity.
//
// A clipper takes one physical batch after another and adds up each privacy unit's gradient, scaled
// so that its norm is at most the clip bound. finish() returns a ClippedSum, the only input that a
// mechanism accepts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/clip_options.h"
#include "dp/clipping/sum_blocks.h"

namespace sotto {
namespace nn {
class Shards;
}
}  // namespace sotto

namespace sotto {

struct ClipBatch;
struct SharedBatch;
struct UnitWeights;
struct ClipGraphs;
class GroupClipper;

// Clips and sums per-sample gradients. Engine makes one for you; use it directly to write another
// private training loop:
//
//   Clipper clipper(flat_group(parameters, 1.0));
//   clipper.begin(draw);
//   clipper.add(tape, loss);  // for each physical batch
//   ClippedSum sum = clipper.finish(std::move(draw));
class Clipper {
 public:
  // Throws std::invalid_argument unless every bound is from 2^-100 to 2^100, every group has a
  // parameter, and all parameters are trainable, in f32 or f64, and in one group only; also for a
  // gamma that is not positive and for sum sizes that cost too much rounding (check_sum_rounding).
  Clipper(std::vector<ClipGroup> groups, const ClipOptions& options = {},
          ClipPasses passes = ClipPasses::one);
  ~Clipper();
  Clipper(const Clipper&) = delete;
  Clipper& operator=(const Clipper&) = delete;

  // Begins a batch whose units will be added in the order of `blocks`, or in any order if each
  // block is one unit. Each block is summed before it is rounded, and every physical batch must end
  // at the end of a block. Without it every unit is rounded alone, and finish() takes only draws of
  // the whole population.
  // Throws std::invalid_argument in the middle of a batch, and for larger blocks than the options
  // allow.
  void begin(SumBlocks blocks);
  // Begins a batch of the draw's units, in any order, each of which is rounded alone.
  void begin(const SampledBatch& draw);
  // Divides the units of the next batch among ranks (null: one rank): each rank calls begin() with
  // the blocks of its own units, and finish() with the whole draw. On the CPU each sum is sent to
  // its owner rank as soon as this rank adds nothing more to it; on a GPU finish() sends all.
  // Collective, as is the begin() that follows. Throws std::invalid_argument in the middle of a
  // batch.
  void share(std::shared_ptr<const nn::Shards> shards);
  // Adds one physical batch: runs backward from a loss [n] on a private tape, which is empty
  // afterwards. Weights that the loss gave to the tape's samples (Tape::set_sample_weights)
  // multiply the clipped gradients, so that the sensitivity is the same; NaN counts as 0, and one
  // outside [0, 1], or with units of several rows, throws std::invalid_argument. The units are
  // those of the grouping; without one, each sample is a unit. Throws std::invalid_argument if the
  // loss depends on a trainable parameter that is in no group. After an out-of-memory error
  // (OutOfMemory, std::bad_alloc) the physical batch counts as not added, unless broken().
  void add(Tape& tape, const Var& loss, const Grouping* grouping = nullptr);
  // Adds `units` units that have no rows. Their gradient is zero; they count 0 in the centered
  // counts of units within bounds and of finite ones (others +-1/2).
  void add_zeros(std::int64_t units);
  // Returns the sum of everything added since the last finish(). `draw` is the sampled batch that
  // the units came from. Throws std::invalid_argument if the number of units added differs from
  // that of the draw or exceeds the maximum batch, if begin() was given other units, or if it was
  // not called for a draw that lacks a unit. If ranks share the batch, finish() is collective: it
  // returns the sums over all ranks of the elements that this rank owns, with the counts on rank 0
  // alone, and throws on every rank if a drawn unit was clipped by several ranks or by none, or if
  // the ranks' bounds differ.
  ClippedSum finish(SampledBatch draw);
  // Drops everything added since the last finish(). Call it after an exception in mid-batch. Sums
  // that have left (share()) stay valid if the same units are added again, and no others can be.
  void discard();
  // True if a failed add() may have left something in the sum. Then only discard() can be called.
  bool broken() const { return state_ == State::broken; }

  // Statistics of the batch that is being added, or else was finished last. NOT private.
  const ClipStatistics& statistics() const { return accumulator_.statistics(); }
  // The sensitivity of the sum, rounding included.
  double sensitivity() const { return rounded_sensitivity(groups_, options_.sum_size); }
  // The groups, with the bounds of the next batch.
  const std::vector<ClipGroup>& groups() const { return groups_; }
  // The clip bounds of the groups, in their order.
  std::vector<double> bounds() const;
  // Sets the clip bounds of the next batch, one per group. Throws std::invalid_argument if their
  // number differs from that of the groups, if one is not from 2^-100 to 2^100, and in the middle
  // of a batch.
  void set_bounds(const std::vector<double>& bounds);
  // Sets the loss scale of the next batch: the losses are multiplied by it before backward, and the
  // gradients divided by it afterwards (Micikevicius et al. 2018). It changes only which values
  // underflow or overflow in f16. Throws std::invalid_argument unless it is a power of two from
  // 2^-24 to 2^24, and in the middle of a batch.
  void set_loss_scale(double scale);
  // The loss scale of the next batch.
  double loss_scale() const { return loss_scale_; }
  // Sets the number of backward passes and the budget in bytes (ClipOptions) from the next batch
  // on. The result is equal up to rounding. Throws std::invalid_argument in the middle of a batch.
  void set_passes(ClipPasses passes, std::optional<std::size_t> per_sample_grad_budget);
  // The number of backward passes of the next batch.
  ClipPasses passes() const { return passes_; }
  // Sets the maximum number of units in a physical batch (0: unknown). The decision to materialize
  // per-sample gradients assumes this size, not the actual one: otherwise the rounding of one
  // unit's gradient would depend on the number of other units in the batch. Throws
  // std::invalid_argument in the middle of a batch, and below 0.
  void set_max_physical_batch(std::int64_t units);
  // The options, with the budget that set_passes() set.
  const ClipOptions& options() const { return options_; }
  // The reason why the last physical batch was not clipped by replaying a CUDA graph. Empty if it
  // was replayed, even if the host then had to clip it again.
  const std::string& capture_failure_reason() const;
  // Returns the sums, f64, of the clipped gradients that this rank has added to the batch so far,
  // before noise: NOT private. An auditor's reference, for one.
  const Gradients& clipped_sums() { return accumulator_.complete_sums(); }

 private:
  enum class State { adding, finished, broken };

  void check_between_batches(const char* what) const;
  void check_clipped(const char* what, std::int64_t units) const;
  void check_division(const SampledBatch& draw);
  void check_size(const SampledBatch& draw) const;
  Gradients sums_of_ranks();
  std::vector<double> counts() const;
  void begin_sharing(const std::shared_ptr<const nn::Shards>& shards);
  void start_batch();
  ClipBatch begin_physical_batch(std::int64_t units, std::int64_t without_rows = 0);
  UnitWeights unit_weights(const Tape& tape, std::int64_t units, const Grouping* grouping) const;
  BlockEnds blocks_of_next(std::int64_t units) const;
  void add_physical_batch(Tape& tape, const Var& loss, const Grouping* grouping);
  void one_pass(Tape& tape, const Var& loss, const Grouping* grouping, const ClipBatch& batch);
  void one_pass_on_gpu(Tape& tape, const Var& loss, const Tensor& losses, const Grouping* grouping,
                       const ClipBatch& batch);
  void two_passes(Tape& tape, const Var& loss, const Grouping* grouping, const ClipBatch& batch);
  bool two_passes_on_gpu(Tape& tape, const Var& loss, const Tensor& losses,
                         const Grouping* grouping, const ClipBatch& batch);

  std::vector<ClipGroup> groups_;
  ClipOptions options_;
  ClipPasses passes_;
  ClipAccumulator accumulator_;
  std::optional<SumBlocks> blocks_;  // of the batch
  double loss_scale_ = 1;
  std::int64_t max_units_ = 0;
  GradBudget budget_;
  State state_ = State::adding;
  std::unique_ptr<ClipGraphs> graphs_;
  std::shared_ptr<const nn::Shards> next_;  // of the next batch that is divided among ranks
  std::unique_ptr<SharedBatch> shared_;     // of the batch
};

}  // namespace sotto
