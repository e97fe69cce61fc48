// Privacy units of several rows: what is clipped is the unit (a user, a sample's augmentations).
#pragma once

#include <cstdint>
#include <vector>

namespace sotto {

class PerSampleGrad;

// Which rows of a batch make up each unit; the unit's gradient is the sum or the mean of theirs.
struct Grouping {
  std::vector<std::int64_t> unit_of_row = {};  // -1: the row belongs to no unit
  std::int64_t units = 0;
  bool mean = false;
  // Whether row k is unit k as long as there are units, and the remaining rows belong to no unit.
  bool first_rows() const;
};

namespace detail {

// One gradient for each unit instead of each row, in the form that the rows' gradients have.
PerSampleGrad group(const PerSampleGrad& rows, const Grouping& grouping);

}  // namespace detail

}  // namespace sotto
