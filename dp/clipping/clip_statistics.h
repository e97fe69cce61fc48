// The norms and clip factors of a batch, for debugging.
#pragma once

#include <cstdint>
#include <vector>

namespace sotto {

// Statistics of one logical batch, for debugging and tests. NOT private: they are exact functions
// of the data and must not be published.
struct ClipStatistics {
  // Before clipping; by group and unit, in the order in which the units were added.
  std::vector<std::vector<double>> norms;
  // As norms.
  std::vector<std::vector<double>> factors;
  std::int64_t not_finite = 0;  // units that contributed nothing because of NaN, Inf or overflow
  double loss_sum = 0;          // over rows that belong to a unit and have a finite loss
  std::int64_t rows = 0;        // those rows
  std::int64_t units = 0;       // added to the batch
};

}  // namespace sotto
