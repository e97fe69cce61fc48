// Operations that move elements without changing them. Negative axes count from the end; all throw
// std::invalid_argument for axes and sizes that do not fit.
#pragma once

#include "autograd/tape.h"

namespace sotto {

// x under another shape, in row-major order; one entry may be -1.
Var reshape(const Var& x, const Shape& shape);
// Merges the axes start .. end, both included.
Var flatten(const Var& x, int start = 1, int end = -1);
Var permute(const Var& x, const Shape& axes);  // y axis k is x axis axes[k]
Var transpose(const Var& x, int a, int b);     // exchanges two axes
Var unsqueeze(const Var& x, int axis);         // inserts an axis of size 1
Var squeeze(const Var& x, int axis);           // drops an axis of size 1
// Broadcasts, aligned at the right; -1 keeps a size.
Var expand(const Var& x, const Shape& shape);
// Elements start, start + step, ... below stop.
Var slice(const Var& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1);
Var select(const Var& x, int axis, std::int64_t index);  // drops the axis
// Joins values along an axis. If a value is batched, each shared value is repeated for every
// sample, and needs size 1 along the sample axis.
Var concat(const std::vector<Var>& parts, int axis);
Var stack(const std::vector<Var>& parts, int axis);  // along a new axis
// Joins several views of the samples (augmentations, or the two sides of a contrastive loss) along
// the sample axis, [views n, ...]. Layers see them as further rows, but a parameter's per-sample
// gradient sums over all views of a sample (De et al. 2022, "augmentation multiplicity").
Var join_views(const std::vector<Var>& views);
// The reverse of join_views(): each view is [n, ...]. Throws std::invalid_argument unless x has
// `views` views.
std::vector<Var> split_views(const Var& x, std::int64_t views);
// y[.., k, ..] = x[.., ids[k], ..] along one axis, with equal ids for all samples; an id of -1
// gives 0.
Var take(const Var& x, int axis, const std::vector<std::int64_t>& ids);
Var flip(const Var& x, const Shape& axes);  // reverses these axes
// y[(i + shift) mod n] = x[i] along one axis.
Var roll(const Var& x, int axis, std::int64_t shift);

// The values of padding: zeros, the mirrored border, the border element repeated, or the opposite
// end.
enum class PadMode { zeros, reflect, replicate, circular };
// Adds `before` and `after` elements along one axis. Reflection does not repeat the border element.
Var pad(const Var& x, int axis, std::int64_t before, std::int64_t after,
        PadMode mode = PadMode::zeros);

}  // namespace sotto
