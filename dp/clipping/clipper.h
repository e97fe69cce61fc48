// Clipping: from per-sample gradients to a sum with a known sensitivity.
//
// A clipper takes one physical batch after another and adds up each privacy unit's gradient, scaled
// so that its norm is at most the clip bound. finish() returns a ClippedSum, the only input that a
// mechanism accepts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_options.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/clipping/clipped_sum.h"

namespace sotto {
class SampledBatch;
class Tape;
class Var;
struct Grouping;
namespace nn {
class Shards;
}
}  // namespace sotto

namespace sotto {

class ClipperState;

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

  // Begins a batch of the draw's units, in any order, each of which is rounded alone. Without it
  // finish() takes only draws of the whole population.
  void begin(const SampledBatch& draw);
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
  // not called for a draw that lacks a unit. If ranks share the batch (ClipperState::share),
  // finish() is collective: it returns the sums over all ranks of the elements that this rank owns,
  // with the counts on rank 0 alone, and throws on every rank if a drawn unit was clipped by
  // several ranks or by none, or if the ranks' bounds differ.
  ClippedSum finish(SampledBatch draw);
  // Drops everything added since the last finish(). Call it after an exception in mid-batch.
  void discard();
  // True if a failed add() may have left something in the sum. Then only discard() can be called.
  bool broken() const;

  // Statistics of the batch that is being added, or else was finished last. NOT private.
  const ClipStatistics& statistics() const;
  // The sensitivity of the sum, rounding included.
  double sensitivity() const;
  // The groups, with the bounds of the next batch.
  const std::vector<ClipGroup>& groups() const;
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
  double loss_scale() const;
  // The options, with the present budget.
  const ClipOptions& options() const;
  // Returns the sums, f64, of the clipped gradients that this rank has added to the batch so far,
  // before noise: NOT private. An auditor's reference, for one.
  const Gradients& clipped_sums();

  // For the engine (dp/clipping/clipper_state.h).
  ClipperState& state() { return *state_; }
  const ClipperState& state() const { return *state_; }

 private:
  std::unique_ptr<ClipperState> state_;
};

}  // namespace sotto
