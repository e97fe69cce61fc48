// Blocks of privacy units: the gradients of a block are summed before the sum is rounded
// (autograd/per_sample/rounded_sum.h). Blocks depend on the numbers of the units, not on their
// places in the batch: removing a unit changes its own block and no other.
//
// The range of unit numbers is halved, at multiples of powers of two, until each block holds at
// most the maximum number of drawn units. Whether a block is halved depends on its own units only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace sotto {

// The drawn units of a batch, divided into blocks by their numbers alone.
class SumBlocks {
 public:
  // The largest block.
  struct Limits {
    std::int64_t units = 96;  // of a block
    std::int64_t rows = 0;    // of a block with more than one unit; 0: unlimited
  };
  // `units` are the numbers of the drawn units, in rising order. rows_of[k] is the number of rows
  // of units[k]; rows_of is empty if each has one. owners[k] is the owner of units[k]: the units of
  // different owners share no block. With owners the units are in the order of owners, and in
  // rising order for each; owners is empty if there is one. Throws std::invalid_argument unless
  // limits.units >= 1.
  SumBlocks(std::span<const std::int64_t> units, std::span<const std::int64_t> rows_of,
            Limits limits, std::span<const std::int64_t> owners = {});

  // The numbers of the units, as given.
  const std::vector<std::int64_t>& units() const { return units_; }
  // True if these, in rising order, are the units.
  bool consist_of(std::span<const std::int64_t> units) const;
  // The limits, as given.
  const Limits& limits() const { return limits_; }
  // Returns the ends of the blocks of at most `max_units` units, as indices into units(), in rising
  // order. Blocks for a smaller maximum subdivide those for a larger one. The ends for each maximum
  // are computed once and cached; not thread-safe.
  const std::vector<std::int64_t>& ends() const& { return ends(limits_.units); }
  // The ends of the blocks of at most `max_units` units.
  const std::vector<std::int64_t>& ends(std::int64_t max_units) const&;
  void ends() && = delete;  // the ends would outlive the blocks
  void ends(std::int64_t max_units) && = delete;

 private:
  void split(std::int64_t first, std::int64_t end, std::int64_t max_units,
             std::vector<std::int64_t>& ends) const;

  std::vector<std::int64_t> units_, rows_before_;
  std::vector<std::int64_t> roots_;  // ends of the owners' units
  Limits limits_;
  mutable std::map<std::int64_t, std::vector<std::int64_t>> ends_;  // by the maximum
};

}  // namespace sotto
