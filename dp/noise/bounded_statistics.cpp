#include "dp/noise/bounded_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace sotto {

double StatisticRange::to_unit(double value) const {
  if (std::isnan(value)) return 0;
  const double part = (std::clamp(value, low, high) - low) / (high - low);
  return std::clamp(2 * part - 1, -1.0, 1.0);
}

double StatisticRange::from_unit(double value) const {
  return std::midpoint(low, high) + (high - low) / 2 * value;
}

StatisticSum::StatisticSum(std::vector<StatisticRange> ranges)
    : ranges_(std::move(ranges)), sums_(ranges_.size(), 0.0) {
  check(!ranges_.empty(), "StatisticSum: no statistics");
  for (const auto& [low, high] : ranges_)
    check(low < high && std::isfinite(high - low), "StatisticSum: a range from {} to {}", low,
          high);
}

void StatisticSum::add(std::span<const double> values) {
  check(values.size() == ranges_.size(), "StatisticSum: {} values of {} statistics", values.size(),
        ranges_.size());
  for (std::size_t k = 0; k < values.size(); ++k) sums_[k] += ranges_[k].to_unit(values[k]);
  ++units_;
}

BoundedStatistics StatisticSum::finish(SampledBatch draw) {
  const std::int64_t drawn = std::ssize(draw.units());
  check(units_ == drawn, "StatisticSum: {} units were drawn and {} added", drawn, units_);
  units_ = 0;
  std::vector<double> sums(ranges_.size(), 0.0);
  std::swap(sums, sums_);
  return {ranges_, std::move(sums), std::move(draw)};
}

}  // namespace sotto
