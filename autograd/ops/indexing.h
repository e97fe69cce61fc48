// Operations that select elements by index or by order. Negative axes count from the end; all throw
// std::invalid_argument for axes, sizes and ids that do not fit.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace sotto {

// One id per element: for axis 1, y[i, j, k] = x[i, ids[i, j, k], k]. y has the shape of ids, i64,
// which may be smaller than x in the other axes. If x is shared and the ids are batched, each
// sample selects from all of x.
Var gather(const Var& x, int axis, const Var& ids);
// y = x, then for axis 1, y[i, ids[i, j, k], k] += src[i, j, k]. src has the shape of ids.
Var scatter_add(const Var& x, int axis, const Var& ids, const Var& src);

// Splits an axis into consecutive parts of the given sizes, which must add up to the axis.
std::vector<Var> split(const Var& x, int axis, const std::vector<std::int64_t>& sizes);
// Splits an axis into at most `parts` parts of equal size; only the last one may be smaller. An
// axis of size 0 is one part.
std::vector<Var> chunk(const Var& x, int axis, std::int64_t parts);
// x tiled: one count per axis, and further counts in front for new axes.
Var repeat(const Var& x, const Shape& counts);
// x with zeros above (tril) or below (triu) the given diagonal of its last two axes.
Var tril(const Var& x, std::int64_t diagonal = 0);
Var triu(const Var& x, std::int64_t diagonal = 0);  // zeros below the diagonal
// x, with `value` where the mask, which broadcasts, is not zero.
Var masked_fill(const Var& x, const Var& mask, double value);

// Extreme value along one axis; the gradient goes to the first of the extreme elements.
Var max(const Var& x, int axis, bool keepdim = false);
Var min(const Var& x, int axis, bool keepdim = false);  // smallest value
// The largest and the smallest value over several axes; an empty list means all.
Var amax(const Var& x, const Shape& axes = {}, bool keepdim = false);
Var amin(const Var& x, const Shape& axes = {}, bool keepdim = false);  // smallest
// The index of the first maximum, i64, without gradient.
Var argmax(const Var& x, int axis, bool keepdim = false);
Var prod(const Var& x, int axis, bool keepdim = false);  // product along one axis
// y[i] = x[0] + ... + x[i] along one axis, computed as a product with a triangular matrix.
Var cumulative_sum(const Var& x, int axis);

// Values in order along one axis, and their indices in x (i64). The sort is stable.
struct Ordered {
  Var values;  // in order
  Var ids;     // i64, indices in x
};
Ordered sort(const Var& x, int axis = -1, bool descending = false);  // ascending, or descending
// The k largest values in descending order, or the k smallest in ascending order.
Ordered topk(const Var& x, std::int64_t k, int axis = -1, bool largest = true);

// Reshapes [n, c r r, h, w] to [n, c, h r, w r] (Shi et al. 2016), and back.
Var pixel_shuffle(const Var& x, std::int64_t factor);
Var pixel_unshuffle(const Var& x, std::int64_t factor);  // [n, c, h r, w r] to [n, c r r, h, w]

}  // namespace sotto
