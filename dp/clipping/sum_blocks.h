// Blocks of units that are summed together before their sum is rounded
// (autograd/per_sample/rounded_sum.h). The numbers of the units decide, not their places in the
// batch: a unit that is left out changes its own block and no other.
//
// The range of numbers is halved, at multiples of powers of two, until a block holds at most the
// maximum of the drawn units. Only the units of a block decide whether it is halved.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace sotto {

class SumBlocks {
 public:
  struct Limits {
    std::int64_t units = 96;
    std::int64_t rows = 0;  // of all its units together, where a block has several; 0: any number
  };
  // `units` are numbers in rising order. rows_of[k] is the number of rows of the k-th of them;
  // rows_of is empty where each has one. Throws std::invalid_argument unless limits.units >= 1.
  SumBlocks(std::span<const std::int64_t> units, std::span<const std::int64_t> rows_of,
            Limits limits);

  const std::vector<std::int64_t>& units() const { return units_; }
  const Limits& limits() const { return limits_; }
  // Returns the ends of blocks of at most `max_units` units, as places in the draw, in rising
  // order. Smaller blocks are parts of larger ones. The blocks for each maximum are found once, by
  // one thread at a time.
  const std::vector<std::int64_t>& ends() const& { return ends(limits_.units); }
  const std::vector<std::int64_t>& ends(std::int64_t max_units) const&;
  void ends() && = delete;  // the ends would outlive the blocks
  void ends(std::int64_t max_units) && = delete;

 private:
  void split(std::int64_t first, std::int64_t end, std::int64_t max_units,
             std::vector<std::int64_t>& ends) const;

  std::vector<std::int64_t> units_, rows_before_;
  Limits limits_;
  mutable std::map<std::int64_t, std::vector<std::int64_t>> ends_;  // by the maximum
};

}  // namespace sotto
