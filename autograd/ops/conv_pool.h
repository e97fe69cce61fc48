// Convolution and pooling over [n, c, spatial...] with one to three spatial axes.
#pragma once

#include <optional>

#include "autograd/ops/shape_ops.h"
#include "autograd/tape.h"

namespace sotto {

// One entry for each spatial axis, or a single one for all.
struct ConvOptions {
  Shape stride{1};
  Shape padding{0};
  Shape dilation{1};
  std::int64_t groups = 1;
  // Overrides `padding`: total dilation (kernel - 1), floor of half before, the rest after;
  // stride 1.
  bool same = false;
  PadMode mode = PadMode::zeros;
};

// Cross-correlation: x [n, c, ...], w [o, c / groups, kernel...] and b [o] shared by all samples.
// Samples lie along the first axis.
Var conv(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt,
         const ConvOptions& options = {});

struct PoolOptions {
  Shape kernel{2};
  Shape stride{};  // the kernel when empty
  Shape padding{0};
  Shape dilation{1};          // maximum only
  bool ceil_mode = false;     // windows may start inside the padding or input and reach beyond it
  bool count_padding = true;  // average only: padding counts in the divisor
};

// Padding counts as minus infinity; a window's gradient goes to its first maximum.
Var max_pool(const Var& x, const PoolOptions& options);
Var avg_pool(const Var& x, const PoolOptions& options);
// Output i of an axis averages the input from floor(i in / out) to ceil((i + 1) in / out).
Var adaptive_avg_pool(const Var& x, const Shape& output);

// For operations on images: [n, c, spatial...] with three spatial axes, and back to `rank` axes.
Tensor with_three_spatial_axes(Tensor x);
Tensor with_rank(Tensor x, int rank);
// The gradient of a shared value as one summand for the whole batch, where samples were mixed.
PerSampleGrad for_samples(PerSampleGrad gradient, SampleAxis samples);

}  // namespace sotto
