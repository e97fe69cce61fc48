// Clipping: from per-sample gradients to a sum with a known sensitivity.
//
// A clipper is handed one physical batch after the other and adds each unit's gradient, scaled so
// that its norm stays within the bound. What it gives out at the end, a ClippedSum, is the only
// thing a mechanism accepts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "autograd/tape.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"
#include "dp/clipping/gpu_clip.h"
#include "dp/clipping/sum_blocks.h"
#include "dp/sampling/sampler.h"

namespace sotto {

struct ClipOptions {
  ClipRule rule = {};
  NormMethod norm_method = NormMethod::automatic;
  // Bytes of materialised rows that may be kept until norms are known.
  std::size_t per_sample_grad_budget = std::size_t{512} << 20;
  // Whether the number of units whose gradient was finite may be released with the sum.
  bool count_finite = false;
  // The most units that a batch may have, and that may be in a block (begin()). The larger the
  // batch, the coarser are the multiples that its sum is made of; blocks of more than one unit cost
  // a little sensitivity. Engine sets both.
  SumSize sum_size = {};
};

// One pass keeps factors or rows until a group's norms are known (book-keeping, Bu et al. 2022).
// Two passes keep nothing: norms first, then backward again with weights (ghost clipping, Li et al.
// 2022). The result is the same up to rounding.
enum class ClipPasses { one, two };

// A sum over units of gradients whose norms were bounded. Not private until a mechanism has
// released it, so its values cannot be read. Moved and used up, never copied.
class ClippedSum {
 public:
  ClippedSum(ClippedSum&&) = default;
  ClippedSum& operator=(ClippedSum&&) = default;
  // The most that one unit can change the sum by, in the L2 norm over all parameters, rounding
  // included.
  double sensitivity() const { return sensitivity_; }
  // The groups of parameters that were clipped.
  std::int64_t groups() const { return std::ssize(within_bound_); }
  // Whether there is a count of finite gradients.
  bool counts_finite() const { return finite_.has_value(); }
  const SampledBatch& draw() const { return draw_; }

 private:
  friend class Clipper;
  friend class Mechanism;
  ClippedSum(Gradients sums, double sensitivity, std::vector<double> unclipped_fraction,
             std::optional<double> finite, SampledBatch draw)
      : sums_(std::move(sums)),
        sensitivity_(sensitivity),
        within_bound_(std::move(unclipped_fraction)),
        finite_(finite),
        draw_(std::move(draw)) {}
  Gradients sums_;
  double sensitivity_;
  // For each group the sum over units of 1/2 or -1/2, as the norm was within the bound or not.
  std::vector<double> within_bound_;
  std::optional<double> finite_;  // the same for gradients that were finite
  SampledBatch draw_;
};

// Facts about one logical batch, for people and tests. NOT private: they are exact functions of the
// data and must not be published.
struct ClipStatistics {
  std::vector<std::vector<double>> norms;    // [group][unit], before clipping
  std::vector<std::vector<double>> factors;  // [group][unit]
  std::int64_t not_finite = 0;  // units that contributed nothing because of NaN, Inf or overflow
  double loss_sum = 0;          // over the rows of units whose loss is finite
  std::int64_t units = 0;
};

class CapturedClip;
class UnitNorms;

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
  // one; parts must end where blocks do. Without it every unit is a term, which is slower. Throws
  // std::invalid_argument in the middle of a batch, and for larger blocks than the options allow.
  void begin(SumBlocks blocks);
  // Adds one physical batch: backward from a loss [n] on a private tape, which is empty afterwards.
  // Throws when the loss reaches a trainable parameter that is in no group. With a grouping the
  // units are its own, else each sample is one. When memory runs out (OutOfMemory, std::bad_alloc)
  // it is as if the part had not been added, unless broken().
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
  bool broken() const { return broken_; }

  // Of the batch that is being added, or was finished last. NOT private.
  const ClipStatistics& statistics() const { return statistics_; }
  double sensitivity() const { return rounded_sensitivity(groups_, options_.sum_size); }
  // For the next batch. Throws std::invalid_argument for another number of bounds than groups, for
  // one that is not positive and finite, and in the middle of a batch.
  void set_bounds(const std::vector<double>& bounds);
  // What the next batch's losses are multiplied by before backward, and gradients are divided by
  // again (Micikevicius et al. 2018): nothing changes but what underflows and overflows in f16.
  // Throws std::invalid_argument for what is not a power of two from 2^-24 to 2^24, and in the
  // middle of a batch.
  void set_loss_scale(double scale);
  double loss_scale() const { return loss_scale_; }
  const std::vector<ClipGroup>& groups() const { return groups_; }
  // Of the groups, in their order.
  std::vector<double> bounds() const;
  // How the next batch is computed: the result is the same up to rounding. Throws
  // std::invalid_argument in the middle of a batch.
  void set_passes(ClipPasses passes, std::size_t per_sample_grad_budget);
  ClipPasses passes() const { return passes_; }
  // Parts of batches have so many units at most, or 0: that is not known. Whether rows are kept is
  // decided as for so many, not by how many a part happens to have, of which the rounding of
  // others' gradients would tell. Throws std::invalid_argument in the middle of a batch, and below
  // 0.
  void set_max_physical_batch(std::int64_t units);
  const ClipOptions& options() const { return options_; }
  // Why the last part was not clipped by a replay of captured work; empty when it was, or was and
  // had to be clipped again.
  const std::string& capture_failure_reason() const { return uncaptured_; }
  // Not private either: the sum before noise, f64, for tests.
  const Gradients& sums_for_tests() { return complete_sums(); }

 private:
  class OnePass;

  std::size_t group_of(const Parameter& parameter) const;
  std::size_t budget_for(std::int64_t units) const;
  struct Factors;
  Factors factors_for(std::size_t group, const UnitNorms& lengths);
  void count(std::size_t group, const std::vector<double>& norms,
             const std::vector<double>& factors);
  Tensor weights_of(std::vector<double> factors) const;
  void clip_group(std::size_t group, ParameterUses& gradients);
  void take(std::size_t group, const DeviceClip& there, bool replayed = false);
  enum class Replayed { no, must_redo_on_host, taken };
  Replayed replay_clip_graph(const ParameterUses& gradients, const Tensor& losses, bool alone);
  void add_weighted(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                    const Factors& factors);
  void add_terms(const RoundedSum& sum, const std::vector<PerSampleGrad>& uses,
                 const Factors& factors, const BlockEnds& ends) const;
  void add_block(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                 const Factors& factors, std::int64_t begin, std::int64_t end);
  RoundedSum empty_sum(const Parameter& parameter, Device device) const;
  std::vector<double> spacings() const;
  double spacing_for(const Parameter& parameter) const;
  RoundedSum sum_for(const Parameter& parameter);
  void add_sum(const Parameter& parameter, const Tensor& total);
  BlockEnds blocks_of_part(std::int64_t units) const;
  void add_physical_batch(Tape& tape, const Var& loss, const Grouping* grouping);
  void add_losses(const std::vector<double>& losses, const Grouping* grouping);
  bool all_on_gpu(const Tensor& losses) const;
  std::unique_ptr<DeviceClip> on_device(const Tensor& losses, std::int64_t units) const;
  void two_passes(Tape& tape, const Var& loss, const Grouping* grouping, std::int64_t units);
  bool two_passes_on_gpu(Tape& tape, const Var& loss, const Tensor& losses,
                         const Grouping* grouping);
  struct Before;
  void undo(const Before& before);
  const Gradients& complete_sums();
  void start_batch();
  void check_between_batches(const char* what) const;
  void begin_units(std::int64_t units);
  void end_units();

  std::vector<ClipGroup> groups_;
  ClipOptions options_;
  ClipPasses passes_;
  Gradients sums_;
  ClipStatistics statistics_;
  std::vector<double> within_bound_;  // as in ClippedSum
  double finite_ = 0;                 // the same
  std::vector<char> unit_finite_;     // of the physical batch that is being added
  std::optional<SumBlocks> blocks_;   // of the batch
  BlockEnds part_ends_;               // of the physical batch, within it
  double loss_scale_ = 1;
  std::int64_t max_physical_batch_ = 0;
  bool finished_ = true;
  bool broken_ = false;        // an add() threw: part of it may be in the sum
  std::vector<bool> had_sum_;  // for each of sums_: from parts before the one that is being added
  bool touched_ = false;       // one of these was added to
  std::shared_ptr<CapturedClip> captured_;
  std::string uncaptured_ = "no captured loss";
};

}  // namespace sotto
