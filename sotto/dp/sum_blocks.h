// Which units of a draw are summed together before the sum is rounded (autograd/rounded_sum.h):
// that is decided by their numbers and not by their places in the batch, so that a unit that is
// left out changes its own block and no other.
//
// The numbers are cut in two, at a multiple of a power of two, again and again, until a block has
// at most so many of the drawn units. Whether it is cut rests on the units of the block alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sotto {

class SumBlocks {
 public:
  struct Limits {
    std::int64_t units = 96;
    std::int64_t rows = 0;  // of all its units together, where a block has several; 0: any number
  };
  // `units` are numbers in rising order; rows_of[k] is how many rows unit k of them has, and empty
  // where each has one. Throws std::invalid_argument unless limits.units >= 1.
  SumBlocks(std::span<const std::int64_t> units, std::span<const std::int64_t> rows_of,
            Limits limits);

  const std::vector<std::int64_t>& units() const { return units_; }
  const Limits& limits() const { return limits_; }
  // Where blocks end, by places in the draw, in rising order; with `most` fewer units in each than
  // the largest may have, within the larger ones.
  std::vector<std::int64_t> ends() const { return ends(limits_.units); }
  std::vector<std::int64_t> ends(std::int64_t most) const;

 private:
  void cut(std::int64_t first, std::int64_t end, std::int64_t most,
           std::vector<std::int64_t>& ends) const;

  std::vector<std::int64_t> units_, rows_before_;
  Limits limits_;
};

}  // namespace sotto
