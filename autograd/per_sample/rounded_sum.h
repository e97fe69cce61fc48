// Sums over samples whose value does not depend on the order of their terms, nor on what else is
// summed: each term is rounded to a multiple of a power of two, and multiples are added exactly.
// docs/appendix/proofs-rounding.md, "The sum over units", bounds the rounding within a term.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace sotto {

class PerSampleGrad;

// A parameter's sum: f64, in multiples of `spacing`.
struct RoundedSum {
  Tensor total;
  double spacing = 1;
};

// Blocks of consecutive samples, each of which may be one term: ends(max) are the ends of blocks of
// at most `max` samples, in rising order. Blocks for a smaller number lie within those for a larger
// one. An empty function: every sample is a term.
using BlockEnds = std::function<std::vector<std::int64_t>(std::int64_t max)>;

// Returns those of rising `ends` that lie in (begin, end], counted from `begin`.
std::vector<std::int64_t> ends_within(std::span<const std::int64_t> ends, std::int64_t begin,
                                      std::int64_t end);

// Adds a tensor of the sum's shape as one term.
void add_term(const Tensor& term, const RoundedSum& sum);

namespace detail {

// PerSampleGrad::add_to().
void add_rounded(const PerSampleGrad& gradient, const RoundedSum& sum, const Tensor& weights,
                 const BlockEnds& ends, std::int64_t uses);

}  // namespace detail

}  // namespace sotto
