// What clipping a batch adds up: the sums, the counts that may be released with them, and
// statistics. A physical batch that failed can be undone.
//
// The sums depend neither on the order of units nor on where physical batches end
// (docs/appendix/proofs-rounding.md, "The sum over units").
#pragma once

#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clipped_sum.h"

namespace sotto {

class ClipAccumulator {
 public:
  // The groups outlive it.
  ClipAccumulator(const std::vector<ClipGroup>& groups, const SumSize& size);

  // Begins a batch: forgets everything.
  void clear();
  // Remembers what undo() goes back to.
  void mark();
  // Undoes everything since mark(). Returns false, with nothing undone, where sums of earlier
  // physical batches were added to: copies of them would be as large as the model.
  bool undo();

  // A physical batch of so many units: between the two, norms are recorded for each group.
  void begin_units(std::int64_t units);
  void end_units();
  void record_norms(std::size_t group, const std::vector<double>& norms,
                    const std::vector<double>& factors);
  // One loss for each row; rows that belong to no unit do not count.
  void add_losses(const std::vector<double>& losses, const Grouping* grouping);
  // One more unit contributed nothing.
  void count_not_finite() { ++statistics_.not_finite; }

  // Returns a sum of zeros for a parameter.
  RoundedSum empty_sum(const Parameter& parameter, Device device) const;
  // Returns the parameter's sum, to be added to.
  RoundedSum sum_for(const Parameter& parameter);
  // Adds a sum whose terms are rounded already; it may become the parameter's own.
  void add_sum(const Parameter& parameter, const Tensor& total);
  // The spacing of each group's sums.
  std::vector<double> spacings() const;

  // The sums of all parameters. What no unit touched is zero, and gets its noise too.
  const Gradients& complete_sums();
  Gradients take_sums();
  const ClipStatistics& statistics() const { return statistics_; }
  const std::vector<double>& unclipped() const { return unclipped_; }  // as in ClippedSum
  double finite() const { return finite_; }                            // the same

 private:
  std::size_t place_of(const Parameter& parameter) const;  // in the sums
  double spacing_for(const Parameter& parameter) const;

  // What a mark remembers: everything but the sums.
  struct Mark {
    double loss_sum = 0;
    std::int64_t not_finite = 0;
    std::vector<double> unclipped;
    std::vector<bool> had_sum;  // for each of the sums
  };

  const std::vector<ClipGroup>& groups_;
  SumSize size_;
  Gradients sums_;
  ClipStatistics statistics_;
  std::vector<double> unclipped_;
  double finite_ = 0;
  std::vector<char> unit_finite_;  // of the physical batch that is being added
  Mark mark_;
  bool touched_ = false;  // a sum that was there at the mark was added to
};

}  // namespace sotto
