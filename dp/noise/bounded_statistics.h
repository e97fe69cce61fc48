// Private statistics of the units besides training: counts, mean losses, accuracies on the training
// data. Values are bounded, summed over a batch, and released by a mechanism through the ledger.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dp/noise/statistic_range.h"

namespace sotto {
class Ranks;
}

namespace sotto {

struct BoundedSums;
class SampledBatch;

// Sums of bounded statistics over the units of a batch. Their values cannot be read: they are not
// private until a mechanism has released them. Throws std::invalid_argument when moved from.
class BoundedStatistics {
 public:
  BoundedStatistics(BoundedStatistics&&) noexcept;
  BoundedStatistics& operator=(BoundedStatistics&&) noexcept;
  ~BoundedStatistics();
  const SampledBatch& draw() const;

 private:
  friend class StatisticSum;
  friend class HistogramSum;
  friend class Mechanism;
  explicit BoundedStatistics(std::unique_ptr<BoundedSums> sums);
  std::unique_ptr<BoundedSums> sums_;
};

// Sums statistics for Mechanism::release().
//
//   StatisticSum sum({{0, 1}});
//   for (const double correct : values) sum.add({&correct, 1});
//   const auto means = mechanism.release(sum.finish(sampler.draw()), ledger);
class StatisticSum {
 public:
  // One range for each statistic. Throws std::invalid_argument unless there is at least one and all
  // are finite with low < high.
  explicit StatisticSum(std::vector<StatisticRange> ranges);
  // Adds one unit's values. Throws std::invalid_argument unless there is one for each statistic.
  void add(std::span<const double> values);
  // Adds a unit without data: 0 to every sum that gets noise, as the middle of each range would. An
  // end of a range in its place would move the sums by twice their sensitivity.
  void add_unit_without_data() { ++units_; }
  // The sums of all units added since the last finish(). Throws std::invalid_argument unless as
  // many were added as are in the batch, of at most 2^27. With several ranks (null: one) each adds
  // some of the units; collective: rank 0 gets the sums, and errors are thrown on every rank.
  BoundedStatistics finish(SampledBatch draw, std::shared_ptr<Ranks> ranks = nullptr);

 private:
  std::vector<StatisticRange> ranges_;
  // Integers, so that their order does not matter: multiples of 2^-26 of half the range, to which
  // values are rounded.
  std::vector<std::int64_t> sums_;
  std::int64_t units_ = 0;
};

// Sums histograms for Mechanism::release(), which returns the fractions of units in their bins. A
// unit is in one bin of each histogram at most: together they have a sensitivity of
// sqrt(histograms), whatever the number of bins.
class HistogramSum {
 public:
  // Throws std::invalid_argument unless both are >= 1.
  HistogramSum(std::int64_t histograms, std::int64_t bins);
  // Adds one unit: the number of its bin in each histogram, or -1. Throws std::invalid_argument
  // for other numbers.
  void add(std::span<const std::int64_t> bins);
  // The counts of all units added since the last finish(), [histograms, bins]. Throws
  // std::invalid_argument unless as many were added as are in the batch.
  BoundedStatistics finish(SampledBatch draw);

 private:
  std::int64_t histograms_, bins_;
  std::vector<double> counts_;
  std::int64_t units_ = 0;
};

}  // namespace sotto
