// The running totals of clipping a batch: the clipped sums, the counts that may be released with
// them, and statistics. A physical batch that failed can be undone.
//
// The sums depend neither on the order of units nor on where physical batches end
// (docs/appendix/proofs-rounding.md, "The sum over units").
#pragma once

#include <vector>

#include "autograd/per_sample/grouping.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_statistics.h"
#include "dp/clipping/clipped_sum_content.h"

namespace sotto::nn {
class SumsToOwners;
}

namespace sotto {

// The number of units of which the grouping has no row.
std::int64_t units_without_rows(const Grouping& grouping);

// The sums, counts and statistics of one logical batch.
class ClipAccumulator {
 public:
  // The groups must outlive this object.
  ClipAccumulator(const std::vector<ClipGroup>& groups, const SumSize& size);

  // Begins a logical batch: drops all totals.
  void clear();
  // Saves the state that undo() restores.
  void mark();
  // Undoes everything since mark(). Returns false, without undoing anything, if a sum that existed
  // at the mark was added to: mark() copies no sums, since they are as large as the model.
  bool undo();

  // Begin and end a physical batch of `units` units. Between the two calls record_norms() is called
  // once for each group. Those of the units that have no rows, and norm 0, count for nothing.
  void begin_units(std::int64_t units, std::int64_t without_rows = 0);
  // Ends the physical batch.
  void end_units();
  // norms and clip factors of the group, one for each unit.
  void record_norms(std::size_t group, const std::vector<double>& norms,
                    const std::vector<double>& factors);
  // Adds one loss per row to the statistics; rows that belong to no unit are skipped.
  void add_losses(const std::vector<double>& losses, const Grouping* grouping);
  // Counts one more unit that contributed nothing.
  void count_not_finite() { ++statistics_.not_finite; }

  // Returns a new sum of zeros for a parameter, with the parameter's spacing.
  RoundedSum empty_sum(const Parameter& parameter, Device device) const;
  // Returns the parameter's sum, to be added to.
  RoundedSum sum_for(const Parameter& parameter);
  // Keeps the gradients times the weights, to be summed when the sum is read, and returns true.
  // Returns false, and keeps nothing, where that is not possible or does not pay: to a parameter
  // that has a sum, or one whose sum would stay in the cache.
  bool defer(const Parameter& parameter, const std::vector<PerSampleGrad>& uses,
             const Tensor& weights, const BlockEnds& ends);
  // The caller gives up the memory of added sums, or will overwrite it.
  enum class Totals { given_up, overwritten };
  // Adds sums whose terms are rounded already, each of another parameter. If a parameter has no sum
  // yet, `totals`' becomes its sum, or a copy of it if the memory will be overwritten.
  void add_sums(const Gradients& totals, Totals state = Totals::given_up);
  // The spacing of each group's sums.
  std::vector<double> spacings() const;

  // Returns the sums of all parameters. A parameter that no unit's loss reached has a sum of zeros,
  // which gets noise like any other.
  const Gradients& complete_sums();
  // Gives up all sums, those that are deferred in `deferred`.
  Gradients take_sums(DeferredSums& deferred);
  // Where finished sums are sent (null: kept here). Must outlive this object or be replaced.
  void send_to(nn::SumsToOwners* owners) { owners_ = owners; }
  // Called when nothing more will be added to the parameter's sum in this batch.
  void settle(const Parameter& parameter);
  // Settles all sums. Returns the parameters in the order of the sums.
  std::vector<Parameter*> settle_all();
  // Statistics of the batch so far. NOT private.
  const ClipStatistics& statistics() const { return statistics_; }
  const std::vector<double>& unclipped() const { return unclipped_; }  // as in ClippedSum
  double finite() const { return finite_; }                            // as in ClippedSum

 private:
  std::size_t place_of(const Parameter& parameter) const;  // in the sums
  Tensor& complete(std::size_t place);                     // computes or makes the sum
  double spacing_for(const Parameter& parameter) const;

  // The saved state: everything but the sums.
  struct Mark {
    double loss_sum = 0;
    std::int64_t rows = 0;
    std::int64_t not_finite = 0;
    std::vector<double> unclipped;
    std::vector<bool> had_sum;  // for each of the sums
  };

  const std::vector<ClipGroup>& groups_;
  SumSize size_;
  Gradients sums_;
  DeferredSums deferred_;  // as many
  ClipStatistics statistics_;
  std::vector<double> unclipped_;
  double finite_ = 0;
  std::vector<char> unit_finite_;  // of the physical batch that is being added
  std::int64_t without_rows_ = 0;  // of its units
  Mark mark_;
  bool touched_ = false;  // a sum that existed at the mark was added to
  nn::SumsToOwners* owners_ = nullptr;
};

}  // namespace sotto
