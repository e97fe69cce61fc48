#include "autograd/ops/resampling.h"

#include <algorithm>
#include <cmath>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/host_device/geometry.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op conv_transpose_op("conv_transpose",
                           {.captures = Op::Captures::shared, .precision = Op::Precision::lower});

std::int64_t entry(const char* op, const Shape& list, int axis, int axes) {
  check(list.rank() == 1 || list.rank() == axes, "{}: {} does not fit {} spatial axes", op, list,
        axes);
  return list.rank() == 1 ? list[0] : list[axis];
}

Var nearest(const Var& x, int axis, std::int64_t out) {
  const std::int64_t in = x.shape()[axis];
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < out; ++i) ids.push_back(i * in / out);
  return take(x, axis, ids);
}

// Linear interpolation: each output is a weighted mean of two neighbours.
Var interpolated(const Var& x, int axis, std::int64_t out, bool align_corners) {
  const std::int64_t in = x.shape()[axis];
  std::vector<std::int64_t> lower, upper;
  std::vector<double> share;
  for (std::int64_t i = 0; i < out; ++i) {
    const double at = static_cast<double>(i),
                 ratio = static_cast<double>(in) / static_cast<double>(out);
    const double aligned =
        out == 1 ? 0 : at * static_cast<double>(in - 1) / static_cast<double>(out - 1);
    const double source = align_corners ? aligned : std::max(0.0, (at + 0.5) * ratio - 0.5);
    lower.push_back(std::min(static_cast<std::int64_t>(source), in - 1));
    upper.push_back(std::min(lower.back() + 1, in - 1));
    share.push_back(source - static_cast<double>(lower.back()));
  }
  Shape shape = Shape::filled(x.rank() - axis, 1);
  shape[0] = out;
  const Tensor weights = to_dtype(Tensor::from(share, shape), x.dtype());
  const Var low = take(x, axis, lower);
  return low + (take(x, axis, upper) - low) * x.tape().constant(weights);
}

Window transposed_window(const Var& x, const Var& w, const ConvTransposeOptions& options) {
  Window window;
  window.groups = options.groups;
  const int axes = x.rank() - 2;
  for (int i = 0; i < axes; ++i) {
    const int k = 3 - axes + i;
    window.kernel[k] = w.shape()[2 + i];
    window.stride[k] = entry("conv_transpose", options.stride, i, axes);
    window.dilation[k] = entry("conv_transpose", options.dilation, i, axes);
    window.before[k] = entry("conv_transpose", options.padding, i, axes);
    const std::int64_t more = entry("conv_transpose", options.output_padding, i, axes);
    check(window.stride[k] >= 1 && window.dilation[k] >= 1 && window.before[k] >= 0 &&
              window.kernel[k] >= 1 && more >= 0 &&
              more < std::max(window.stride[k], window.dilation[k]),
          "conv_transpose: out of range: kernel {}, stride {}, dilation {}, padding {}, output "
          "padding {}",
          window.kernel[k], window.stride[k], window.dilation[k], window.before[k], more);
    // Its transpose, the convolution from y to x, does not read the output's last `more` positions.
    window.after[k] = window.before[k] - more;
  }
  return window;
}

// The output's shape, [n, o, ...] with three spatial axes.
Shape transposed_shape(const Tensor& x, const Tensor& w, const Window& window) {
  Shape shape{x.size(0), w.size(1) * window.groups};
  for (int k = 0; k < 3; ++k) {
    shape.push_back((x.size(2 + k) - 1) * window.stride[k] - window.before[k] - window.after[k] +
                    window.dilation[k] * (window.kernel[k] - 1) + 1);
    check(shape[2 + k] >= 1,
          "conv_transpose: input {} and padding {} leave no elements along axis {}", x.shape(),
          window.before[k], 2 + k);
  }
  return shape;
}

void check_transposed(const Var& x, const Var& w, const std::optional<Var>& b,
                      std::int64_t groups) {
  check(x.rank() >= 3 && x.rank() <= 5,
        "conv_transpose: input {} is not [n, c, 1 to 3 spatial axes]", x.shape());
  check(w.rank() == x.rank() && groups >= 1 && x.shape()[1] == w.shape()[0] &&
            x.shape()[1] % groups == 0,
        "conv_transpose: input {} does not fit weight {} in {} groups", x.shape(), w.shape(),
        groups);
  check(!b || b->shape() == Shape{w.shape()[1] * groups},
        "conv_transpose: bias {} does not fit weight {} in {} groups", b ? b->shape() : Shape{},
        w.shape(), groups);
  check(w.samples().is_shared() && (!b || b->samples().is_shared()),
        "conv_transpose: weight and bias must be shared by all samples");
}

}  // namespace

Var upsample(const Var& x, const Shape& size, const UpsampleOptions& options) {
  const int axes = x.rank() - 2;
  check(axes >= 1 && axes <= 3 && size.rank() == axes,
        "upsample: size {} does not fit the input {}", size, x.shape());
  Var y = x;
  for (int i = 0; i < axes; ++i) {
    check(size[i] >= 1 && x.shape()[2 + i] >= 1, "upsample: size {} does not fit the input {}",
          size, x.shape());
    y = options.mode == Interpolation::nearest
            ? nearest(y, 2 + i, size[i])
            : interpolated(y, 2 + i, size[i], options.align_corners);
  }
  return y;
}

Var conv_transpose(const Var& input_images, const Var& weights, const std::optional<Var>& b,
                   const ConvTransposeOptions& options) {
  check_transposed(input_images, weights, b, options.groups);
  Var x = input_images, w = weights;
  cast_inputs(conv_transpose_op, {&x, &w});
  check(x.dtype() == w.dtype(), "conv_transpose: dtypes differ: input is {}, weight {}",
        name(x.dtype()), name(w.dtype()));
  const Window window = transposed_window(x, w, options);
  Shape touched;
  for (int i = 1; i < x.rank(); ++i) touched.push_back(i);
  const SampleAxis samples = preserve_sample_axis(conv_transpose_op, x, touched);
  const int rank = x.rank();
  const Tensor input = channels_last(with_three_spatial_axes(x.value())),
               weight = with_three_spatial_axes(w.value());
  const Tensor sum = conv_data(input, weight, window, transposed_shape(input, weight, window));
  // The weight's gradient is that of a convolution from y to x.
  if (tracing()) trace_attributes(window_attributes(window));
  const Var y = x.tape().record(
      conv_transpose_op, {x, w}, with_rank(sum, rank), samples,
      [=, shape = w.shape()](const Tensor& d, Adjoint& adjoint) {
        const Tensor dy = channels_last(with_three_spatial_axes(d));
        if (adjoint.wants(0)) adjoint.input(0, with_rank(conv(dy, weight, Tensor(), window), rank));
        if (adjoint.wants(1))
          adjoint.shared(1, for_samples(PerSampleGrad::patches(input, dy, window, shape), samples));
      });
  if (!b) return y;
  Shape channels = Shape::filled(rank - 1, 1);
  channels[0] = b->shape()[0];
  return y + reshape(*b, channels);
}

Var adaptive_max_pool(const Var& x, const Shape& output) {
  const int axes = x.rank() - 2;
  check(axes >= 1 && output.rank() == axes,
        "adaptive_max_pool: output {} does not fit the input {}", output, x.shape());
  Var y = x;
  for (int i = 0; i < axes; ++i) {
    const std::int64_t in = x.shape()[2 + i], out = output[i];
    check(out >= 1 && in >= 1, "adaptive_max_pool: output {} does not fit the input {}", output,
          x.shape());
    std::vector<Var> parts;
    for (std::int64_t o = 0; o < out; ++o) {
      parts.push_back(
          max(slice(y, 2 + i, o * in / out, ((o + 1) * in + out - 1) / out), 2 + i, true));
    }
    y = concat(parts, 2 + i);
  }
  return y;
}

Var lp_pool(const Var& x, double p, const PoolOptions& options) {
  check(p >= 1 && std::isfinite(p), "lp_pool: p is {}", p);
  const int axes = x.rank() - 2;
  double window = 1;
  for (int i = 0; i < axes; ++i)
    window *= static_cast<double>(entry("lp_pool", options.kernel, i, axes));
  PoolOptions counted = options;
  counted.count_padding = true;
  const Var total = affine(avg_pool(pow(x, p), counted), window, 0);
  // The root is not differentiable at zero; the substitute's gradient is multiplied by zero.
  const Var safe = where(total, total, x.tape().constant(full({}, 1, x.dtype())));
  return where(total, pow(safe, 1 / p), x.tape().constant(zeros({}, x.dtype())));
}

}  // namespace sotto
