// Operations that move elements without changing them. Negative axes count from the end; all throw
// std::invalid_argument for axes and sizes that do not fit.
#pragma once

#include "autograd/tape.h"

namespace sotto {

// Row-major order kept; one entry may be -1.
Var reshape(const Var& x, const Shape& shape);
// Axes start .. end, both included, joined into one.
Var flatten(const Var& x, int start = 1, int end = -1);
Var permute(const Var& x, const Shape& axes);  // y axis k is x axis axes[k]
Var transpose(const Var& x, int a, int b);
Var unsqueeze(const Var& x, int axis);
Var squeeze(const Var& x, int axis);
// Broadcasts, aligned at the right; -1 keeps a size.
Var expand(const Var& x, const Shape& shape);
Var slice(const Var& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1);
Var select(const Var& x, int axis, std::int64_t index);
// Shared parts among batched ones repeat for each sample and need size 1 along the sample axis.
Var concat(const std::vector<Var>& parts, int axis);
Var stack(const std::vector<Var>& parts, int axis);
// Views of the same samples (augmentations, the two sides of a contrastive loss) one after the
// other along their sample axis, [views n, ...]: every layer takes them as so many rows, and what a
// parameter gets from all rows of a sample counts as that sample's.
Var join_views(const std::vector<Var>& views);
// The views again, each [n, ...]. Throws std::invalid_argument for another number than x has.
std::vector<Var> split_views(const Var& x, std::int64_t views);
// y[.., k, ..] = x[.., ids[k], ..] along one axis, the same for all samples; an id of -1 gives 0.
Var take(const Var& x, int axis, const std::vector<std::int64_t>& ids);
Var flip(const Var& x, const Shape& axes);
// y[(i + shift) mod n] = x[i] along one axis.
Var roll(const Var& x, int axis, std::int64_t shift);

enum class PadMode { zeros, reflect, replicate, circular };
// `before` and `after` elements more along one axis. Reflect does not repeat the border element.
Var pad(const Var& x, int axis, std::int64_t before, std::int64_t after,
        PadMode mode = PadMode::zeros);

}  // namespace sotto
