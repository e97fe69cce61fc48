// Privacy units of several rows, such as a user's samples or a sample's augmentations: the gradient
// that is clipped is the unit's.
#pragma once

#include <cstdint>
#include <vector>

namespace sotto {

class PerSampleGrad;

// The unit that each row of a batch belongs to. A unit's gradient is the sum (or mean) of its
// rows'.
struct Grouping {
  std::vector<std::int64_t> unit_of_row = {};  // -1: the row belongs to no unit
  std::int64_t units = 0;                      // number of units
  bool mean = false;                           // the mean of a unit's rows, not the sum
  // Each unit's rows are padded to this number; 0: that of the largest unit. The last bits of a
  // unit's gradient depend on it, so that private batches hold units of one padded size.
  std::int64_t width = 0;
  // The number K of rows of each unit if unit k consists of the rows kK .. kK + K - 1, padded to no
  // more, and the rows after the last unit's belong to none; otherwise 0. 1 without units.
  std::int64_t rows_each() const;
};

namespace detail {

// Returns one gradient per unit instead of per row, in the form of the rows' gradients; those of a
// convolution become an outer or dense form. Throws std::invalid_argument unless the grouping has
// as many rows as the batch, and for a unit of more than `width` rows.
PerSampleGrad group(const PerSampleGrad& rows, const Grouping& grouping);

}  // namespace detail

}  // namespace sotto
