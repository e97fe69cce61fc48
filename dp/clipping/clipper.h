// Clipping: from per-sample gradients to a sum with a known sensitivity.
//
// A clipper is handed one physical batch after the other and adds each unit's gradient, scaled so
// that its norm stays within the bound. What it gives out at the end, a ClippedSum, is the only
// thing a mechanism accepts.
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

struct ClipBatch;
struct ClipGraph;
class GroupClipper;

class Clipper {
 public:
  // Throws std::invalid_argument unless bounds are positive and finite, there is a parameter, and
  // no parameter is in two groups or frozen.
  Clipper(std::vector<ClipGroup> groups, const ClipOptions& options = {},
          ClipPasses passes = ClipPasses::one);
  ~Clipper();
  Clipper(const Clipper&) = delete;
  Clipper& operator=(const Clipper&) = delete;

  // Begins a batch whose units will be added in the order of the blocks, each of which is summed as
  // one; physical batches must end where blocks do. Without it every unit is a term, which is
  // slower. Throws std::invalid_argument in the middle of a batch, and for larger blocks than the
  // options allow.
  void begin(SumBlocks blocks);
  // Adds one physical batch: backward from a loss [n] on a private tape, which is empty afterwards.
  // Throws when the loss reaches a trainable parameter that is in no group. With a grouping the
  // units are its own, else each sample is one. When memory runs out (OutOfMemory, std::bad_alloc)
  // it is as if the physical batch had not been added, unless broken().
  void add(Tape& tape, const Var& loss, const Grouping* grouping = nullptr);
  // Adds units that have no rows: a gradient of zero each.
  void add_zeros(std::int64_t units);
  // The sum of everything added since the last finish, for the draw that the units came from.
  // Throws when another number of units was added than drawn, more than the largest batch, or other
  // units than begin() was told.
  ClippedSum finish(SampledBatch draw);
  // Forgets what was added: after an exception in mid-batch.
  void discard();
  // Whether a failed add() may have left something in the sum: only discard() helps then.
  bool broken() const { return state_ == State::broken; }

  // Of the batch that is being added, or was finished last. NOT private.
  const ClipStatistics& statistics() const { return accumulator_.statistics(); }
  double sensitivity() const { return rounded_sensitivity(groups_, options_.sum_size); }
  const std::vector<ClipGroup>& groups() const { return groups_; }
  // Of the groups, in their order.
  std::vector<double> bounds() const;
  // For the next batch. Throws std::invalid_argument for another number of bounds than groups, for
  // one that is not positive and finite, and in the middle of a batch.
  void set_bounds(const std::vector<double>& bounds);
  // What the next batch's losses are multiplied by before backward, and gradients are divided by
  // again (Micikevicius et al. 2018): nothing changes but what underflows and overflows in f16.
  // Throws std::invalid_argument for what is not a power of two from 2^-24 to 2^24, and in the
  // middle of a batch.
  void set_loss_scale(double scale);
  double loss_scale() const { return loss_scale_; }
  // How the next batch is computed: the result is the same up to rounding. Throws
  // std::invalid_argument in the middle of a batch.
  void set_passes(ClipPasses passes, std::size_t per_sample_grad_budget);
  ClipPasses passes() const { return passes_; }
  // The most units of a physical batch (0: not known). Whether per-sample gradients are
  // materialized is decided for this size, not for the actual one: otherwise the rounding of one
  // unit's gradient would depend on how many others are in the batch. Throws std::invalid_argument
  // in the middle of a batch, and below 0.
  void set_max_physical_batch(std::int64_t units);
  const ClipOptions& options() const { return options_; }
  // Why the last physical batch was not clipped by replaying a CUDA graph. Empty if it was, even if
  // it then had to be clipped again by the host.
  const std::string& capture_failure_reason() const;
  // Not private either: the sum before noise, f64, for tests.
  const Gradients& sums_for_tests() { return accumulator_.complete_sums(); }

 private:
  enum class State { adding, finished, broken };

  void check_between_batches(const char* what) const;
  void start_batch();
  ClipBatch begin_physical_batch(std::int64_t units);
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
  State state_ = State::adding;
  std::unique_ptr<ClipGraph> graph_;
};

}  // namespace sotto
