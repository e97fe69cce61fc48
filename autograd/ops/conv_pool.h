// Convolution and pooling over [n, c, spatial...] with one to three spatial axes.
#pragma once

#include <optional>

#include "autograd/ops/shape_ops.h"
#include "autograd/tape.h"

namespace sotto {

// Options of conv(). Lists have one entry per spatial axis, or a single one for all.
struct ConvOptions {
  Shape stride{1};          // positions between windows
  Shape padding{0};         // zeros (or mode) on each side
  Shape dilation{1};        // distance of a window's elements
  std::int64_t groups = 1;  // divides c and o
  // Overrides `padding`: total padding max(0, (out - 1) stride + dilation (kernel - 1) + 1 - in)
  // for out = in / stride, rounded up, so that it depends on the size; floor of half before, the
  // rest after.
  bool same = false;
  PadMode mode = PadMode::zeros;  // values of the padding
};

// Cross-correlation: x [n, c, ...], w [o, c / groups, kernel...] and b [o], y [n, o, ...]. w and b
// are shared by all samples, and the samples are x's first axis.
Var conv(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt,
         const ConvOptions& options = {});

// Options of max_pool(), avg_pool() and lp_pool(). Lists have one entry per spatial axis, or a
// single one for all.
struct PoolOptions {
  Shape kernel{2};            // sizes of a window
  Shape stride{};             // empty: the kernel
  Shape padding{0};           // zeros (or mode) on each side
  Shape dilation{1};          // max_pool only
  bool ceil_mode = false;     // windows may start inside the padding or input and extend beyond it
  bool count_padding = true;  // avg_pool only: padding counts in the divisor
};

// Max pooling pads with minus infinity; a window's gradient goes to its first maximum.
Var max_pool(const Var& x, const PoolOptions& options);
Var avg_pool(const Var& x, const PoolOptions& options);  // the mean of each window
// Output i of an axis averages the input from floor(i in / out) to ceil((i + 1) in / out).
Var adaptive_avg_pool(const Var& x, const Shape& output);

// Helpers of operations on images: x as [n, c, spatial...] with three spatial axes, and back.
Tensor with_three_spatial_axes(Tensor x);
Tensor with_rank(Tensor x, int rank);  // back to so many axes
// The gradient of a shared value for the result's sample axis: if samples were mixed, one summand
// for the whole batch.
PerSampleGrad for_samples(PerSampleGrad gradient, SampleAxis samples);

}  // namespace sotto
