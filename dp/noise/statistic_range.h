// The public range of a statistic of privacy units.
#pragma once

namespace sotto {

// The range that one unit's value of a statistic is clamped to. {0, 1} for counts and accuracies.
struct StatisticRange {
  double low = 0, high = 1;  // low < high, both finite

  // The clamped value, mapped linearly to [-1, 1]; 0 for NaN.
  double to_unit(double value) const;
  // The inverse of to_unit() within the range.
  double from_unit(double value) const;
};

}  // namespace sotto
