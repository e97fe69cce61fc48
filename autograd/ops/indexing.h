// Operations that pick elements by index or by order. Negative axes count from the end; all throw
// std::invalid_argument for axes, sizes and ids that do not fit.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace sotto {

// An id for each element: y[i, j, k] = x[i, ids[i, j, k], k] for axis 1, and so on; y has the shape
// of ids, i64, which may be smaller than x in the other axes. Where x is shared by all samples and
// the ids are not, each sample picks from the whole of x.
Var gather(const Var& x, int axis, const Var& ids);
// y = x, and then y[i, ids[i, j, k], k] += src[i, j, k] for axis 1, and so on. src has the shape of
// ids.
Var scatter_add(const Var& x, int axis, const Var& ids, const Var& src);

// Neighbouring parts of the given sizes, which add up to the axis.
std::vector<Var> split(const Var& x, int axis, const std::vector<std::int64_t>& sizes);
// As many parts as asked for, all of one size but the last, which may be smaller (there may be
// fewer parts then).
std::vector<Var> chunk(const Var& x, int axis, std::int64_t parts);
// x tiled; one count for each axis, and more in front for new axes.
Var repeat(const Var& x, const Shape& counts);
// The last two axes with zeros above (below) the given diagonal.
Var tril(const Var& x, std::int64_t diagonal = 0);
Var triu(const Var& x, std::int64_t diagonal = 0);
// `value` where the mask, which broadcasts, is not zero.
Var masked_fill(const Var& x, const Var& mask, double value);

// Along one axis; the gradient goes to the first of the extreme elements.
Var max(const Var& x, int axis, bool keepdim = false);
Var min(const Var& x, int axis, bool keepdim = false);
// Over several axes; an empty list means all.
Var amax(const Var& x, const Shape& axes = {}, bool keepdim = false);
Var amin(const Var& x, const Shape& axes = {}, bool keepdim = false);
// i64 without gradient; the first of the largest.
Var argmax(const Var& x, int axis, bool keepdim = false);
Var prod(const Var& x, int axis, bool keepdim = false);
// y[i] = x[0] + ... + x[i] along one axis, as a product with a triangular matrix.
Var cumulative_sum(const Var& x, int axis);

// Values in order along one axis, and where they were (i64). Equal elements keep their order.
struct Ordered {
  Var values;
  Var ids;
};
Ordered sort(const Var& x, int axis = -1, bool descending = false);
// The first k of a descending (or, for the smallest, ascending) sort.
Ordered topk(const Var& x, std::int64_t k, int axis = -1, bool largest = true);

// [n, c r r, h, w] to [n, c, h r, w r] (Shi et al. 2016), and back.
Var pixel_shuffle(const Var& x, std::int64_t factor);
Var pixel_unshuffle(const Var& x, std::int64_t factor);

}  // namespace sotto
