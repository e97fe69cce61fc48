// Images made larger or smaller: interpolation, transposed convolution, pooling by order and power.
// All over [n, c, spatial...].
#pragma once

#include "autograd/ops/conv_pool.h"

namespace sotto {

enum class Interpolation {
  nearest,  // source index floor(i in / out)
  linear,   // between the two neighbours along every spatial axis: linear, bilinear, trilinear
};

struct UpsampleOptions {
  Interpolation mode = Interpolation::nearest;
  // Linear only. The source of output i is i (in - 1) / (out - 1) with it, and without it
  // max(0, (i + 0.5) in / out - 0.5).
  bool align_corners = false;
};

// To the given spatial sizes.
Var upsample(const Var& x, const Shape& size, const UpsampleOptions& options = {});

struct ConvTransposeOptions {
  Shape stride{1};
  Shape padding{0};
  Shape output_padding{0};
  Shape dilation{1};
  std::int64_t groups = 1;
};

// The transpose of a convolution: input position i adds w[.., j] x[i] to output position
// i stride - padding + j dilation. x [n, c, ...], w [c, o / groups, kernel...] and b [o] shared by
// all samples; the output has (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding
// + 1 positions along an axis.
Var conv_transpose(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt,
                   const ConvTransposeOptions& options = {});

// Output i of an axis is the maximum of the input from floor(i in / out) to ceil((i + 1) in / out).
Var adaptive_max_pool(const Var& x, const Shape& output);
// (sum of x^p over the window)^(1/p), p >= 1; of values whose power is negative it is NaN, as in
// the field. The gradient of a sum of zero is zero.
Var lp_pool(const Var& x, double p, const PoolOptions& options);

}  // namespace sotto
