// Sums over samples in which a term's contribution depends neither on the order of the terms nor on
// the other terms: each term is rounded to a multiple of a power of two, and multiples are added
// exactly. docs/appendix/proofs-rounding.md, "The sum over units", bounds the rounding within a
// term.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace sotto {

class PerSampleGrad;

// A parameter's sum, f64: a multiple of `spacing` (a power of two) in every element.
struct RoundedSum {
  Tensor total;        // f64
  double spacing = 1;  // a power of two
};

// Divides the samples into blocks, each of which is one term: ends(max) returns the ends of
// consecutive blocks of at most `max` samples, in rising order. Blocks for a smaller `max`
// subdivide those for a larger one. An empty function makes every sample a term.
using BlockEnds = std::function<std::vector<std::int64_t>(std::int64_t max)>;

// Returns the elements of `ends`, which is sorted, that lie in (begin, end], minus `begin`.
std::vector<std::int64_t> ends_within(std::span<const std::int64_t> ends, std::int64_t begin,
                                      std::int64_t end);

// Adds a tensor of the sum's shape as one term.
void add_term(const Tensor& term, const RoundedSum& sum);

namespace detail {

class Form;
struct OneHot;

// The maximum number of samples in one term if the parameter is used `uses` times.
std::int64_t max_in_term(const Form& form, std::int64_t uses);

// Adds the row of each position of each sample as one term. Where samples have so many positions
// that these may all round alike, to more than 256 times half a spacing in each element of the
// parameter, each sample is one term. The sum has all of the parameter's `table_rows` rows, or
// some that the ids are numbers of.
void add_table(const OneHot& table, std::int64_t table_rows, const RoundedSum& sum,
               const Tensor& weights, std::int64_t uses);

// Implements PerSampleGrad::add_to().
void add_rounded(const PerSampleGrad& gradient, const RoundedSum& sum, const Tensor& weights,
                 const BlockEnds& ends, std::int64_t uses);

}  // namespace detail

}  // namespace sotto
