// Operations that change the size of images [n, c, spatial...]: interpolation, transposed
// convolution, and further kinds of pooling.
#pragma once

#include "autograd/ops/conv_pool.h"

namespace sotto {

// The way in which upsample() fills in values.
enum class Interpolation {
  nearest,  // source index floor(i in / out)
  linear,   // between two neighbours along every spatial axis: linear, bilinear, trilinear
};

struct UpsampleOptions {
  Interpolation mode = Interpolation::nearest;  // nearest or linear
  // For linear only. If true, the source of output i is i (in - 1) / (out - 1), else max(0, (i +
  // 0.5) in / out - 0.5).
  bool align_corners = false;
};

// Interpolates x [n, c, spatial...] to the spatial sizes `size`.
Var upsample(const Var& x, const Shape& size, const UpsampleOptions& options = {});

// Options of conv_transpose(). Lists have one entry per spatial axis, or a single one for all.
// `output_padding` adds positions at the output's end.
struct ConvTransposeOptions {
  Shape stride{1};          // outputs between two inputs
  Shape padding{0};         // outputs cut off on each side
  Shape output_padding{0};  // less than the stride or dilation
  Shape dilation{1};        // distance of the kernel's elements
  std::int64_t groups = 1;  // divides c and o
};

// The transpose of a convolution: input position i adds w[.., j] x[i] to output position i stride -
// padding + j dilation. x [n, c, ...]; w [c, o / groups, kernel...] and b [o] are shared by all
// samples. The output has (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1
// positions along an axis.
Var conv_transpose(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt,
                   const ConvTransposeOptions& options = {});

// Output i of an axis is the maximum of the input from floor(i in / out) to ceil((i + 1) in / out).
Var adaptive_max_pool(const Var& x, const Shape& output);
// (sum of x^p over the window)^(1/p), p >= 1. It is NaN if the sum is negative, and has gradient
// zero where the sum is zero.
Var lp_pool(const Var& x, double p, const PoolOptions& options);

}  // namespace sotto
