// Sums over samples whose value does not depend on the order of their terms, nor on what else is
// summed: each term is rounded to a multiple of a power of two, and multiples are added exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sotto/core/tensor.h"

namespace sotto {

// A parameter's sum: f64, in multiples of `spacing`.
struct RoundedSum {
  Tensor total;
  double spacing = 1;
};

// Which consecutive samples may be one term, by one product, before they are rounded: ends(most)
// are the ends of blocks of at most `most` samples, in rising order, and ends(1) those of single
// samples. Blocks for a smaller number lie within those for a larger one.
using BlockEnds = std::function<std::vector<std::int64_t>(std::int64_t most)>;

// Every sample is a term.
std::vector<std::int64_t> single_ends(std::int64_t samples);

}  // namespace sotto
