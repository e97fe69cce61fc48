// The state of a Clipper, and the calls that the engine alone makes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/group_clipper.h"
#include "dp/clipping/sum_blocks.h"

namespace sotto {

struct ClipGraphs;
struct SharedBatch;

class ClipperState {
 public:
  // The clipper that owns this.
  ClipperState(const Clipper& clipper, std::vector<ClipGroup> groups, const ClipOptions& options,
               ClipPasses passes);
  ~ClipperState();

  // Begins a batch whose units will be added in the order of `blocks`, or in any order if each
  // block is one unit. Each block is summed before it is rounded, and every physical batch must end
  // at the end of a block.
  // Throws std::invalid_argument in the middle of a batch, and for larger blocks than the options
  // allow.
  void begin(SumBlocks blocks);
  // Divides the units of a batch among ranks (null: one rank): each rank calls begin() with the
  // blocks of its own units, and finish() with the whole draw. Call it before begin(): then, on the
  // CPU, each sum is sent to its owner rank as soon as this rank adds nothing more to it. On a GPU,
  // and after a later call, finish() sends all. Collective, as is the begin() that follows.
  void share(std::shared_ptr<const nn::Shards> shards);
  // From now on a batch that is one physical batch may be summed when its sum is released. The
  // caller changes none of the tensors that its loss was computed from before that.
  void defer_sums() { defers_ = true; }
  // As those of Clipper.
  void add(Tape& tape, const Var& loss, const Grouping* grouping);
  void add_zeros(std::int64_t units);
  ClippedSum finish(SampledBatch draw);
  // Sums that have left (share()) stay valid if the same units are added again, and no others can
  // be.
  void discard();
  bool broken() const { return state_ == State::broken; }

  // Throws std::invalid_argument, naming `what`, in the middle of a batch.
  void check_between_batches(const char* what) const;
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
  // The reason why the last physical batch was not clipped by replaying a CUDA graph. Empty if it
  // was replayed, even if the host then had to clip it again.
  const std::string& capture_failure_reason() const;

 private:
  friend class Clipper;
  enum class State { adding, finished, broken };
  void start_batch();
  void begin_sharing(const std::shared_ptr<const nn::Shards>& shards);
  ClipBatch begin_physical_batch(std::int64_t units, std::int64_t without_rows = 0);
  BlockEnds blocks_of_next(std::int64_t units) const;
  void add_physical_batch(Tape& tape, const Var& loss, const Grouping* grouping);
  void check_clipped(const char* what, std::int64_t units) const;
  void check_division(const SampledBatch& draw);
  Gradients sums_of_ranks();
  std::vector<double> counts() const;

  const Clipper& clipper_;
  std::vector<ClipGroup> groups_;
  ClipOptions options_;
  ClipPasses passes_;
  ClipAccumulator accumulator_;
  std::optional<SumBlocks> blocks_;  // of the batch
  double loss_scale_ = 1;
  std::int64_t max_units_ = 0;
  GradBudget budget_;
  State state_ = State::adding;
  bool defers_ = false;
  std::unique_ptr<ClipGraphs> graphs_;
  std::shared_ptr<const nn::Shards> next_;  // of the next batch that is divided among ranks
  std::unique_ptr<SharedBatch> shared_;     // of the batch
};

}  // namespace sotto
