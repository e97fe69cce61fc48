#include "autograd/ops/conv_pool.h"

#include <algorithm>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/reductions.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op conv_op("conv", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});
const Op max_pool_op("max_pool", {.captures = Op::Captures::shared});
const Op avg_pool_op("avg_pool", {.captures = Op::Captures::shared});

void check_images(const Op& op, const Var& x) {
  check(x.rank() >= 3 && x.rank() <= 5, "{}: input {} is not [n, c, 1 to 3 spatial axes]", op.name,
        x.shape());
}

std::int64_t at(const char* op, const Shape& list, int axis, int axes) {
  check(list.rank() == 1 || list.rank() == axes, "{}: {} does not fit {} spatial axes", op, list,
        axes);
  return list.rank() == 1 ? list[0] : list[axis];
}

// Padding "same": as many windows along axis k as strides begin within the `in` pixels.
void set_padding(Window& window, int k, std::int64_t in, std::int64_t padding, bool same) {
  check(padding >= 0, "conv: out of range: padding {}", padding);
  const std::int64_t stride = window.stride[k], span = window.dilation[k] * (window.kernel[k] - 1);
  const std::int64_t last = (in + stride - 1) / stride - 1;
  const std::int64_t total = std::max<std::int64_t>(last * stride + span + 1 - in, 0);
  window.before[k] = same ? total / 2 : padding;
  window.after[k] = same ? total - total / 2 : padding;
}

Window conv_window(const Var& x, const Var& w, const ConvOptions& options) {
  Window window;
  window.groups = options.groups;
  const int axes = x.rank() - 2;
  for (int i = 0; i < axes; ++i) {
    const int k = 3 - axes + i;
    window.kernel[k] = w.shape()[2 + i];
    window.stride[k] = at("conv", options.stride, i, axes);
    window.dilation[k] = at("conv", options.dilation, i, axes);
    check(window.stride[k] >= 1 && window.dilation[k] >= 1 && window.kernel[k] >= 1,
          "conv: out of range: kernel {}, stride {}, dilation {}", window.kernel[k],
          window.stride[k], window.dilation[k]);
    set_padding(window, k, x.shape()[2 + i], at("conv", options.padding, i, axes), options.same);
    check(window.output_size(k, x.shape()[2 + i]) >= 1,
          "conv: a kernel of {} does not fit in axis {} of {}", window.kernel[k], 2 + i, x.shape());
  }
  return window;
}

void check_conv(const Var& x, const Var& w, const std::optional<Var>& b,
                const ConvOptions& options) {
  check_images(conv_op, x);
  check(w.rank() == x.rank() && options.groups >= 1 &&
            x.shape()[1] == w.shape()[1] * options.groups && w.shape()[0] % options.groups == 0,
        "conv: input {} does not fit weight {} in {} groups", x.shape(), w.shape(), options.groups);
  check(!b || b->shape() == Shape{w.shape()[0]}, "conv: bias {} does not fit weight {}",
        b ? b->shape() : Shape{}, w.shape());
  check(w.samples().is_shared() && (!b || b->samples().is_shared()),
        "conv: weight and bias must be shared by all samples");
}

// Padding other than zeros is a separate op before the convolution.
Var padded(const Var& x, Window& window, PadMode mode) {
  if (mode == PadMode::zeros) return x;
  Var y = x;
  const int axes = x.rank() - 2;
  for (int i = 0; i < axes; ++i) {
    const int k = 3 - axes + i;
    y = pad(y, 2 + i, std::exchange(window.before[k], 0), std::exchange(window.after[k], 0), mode);
  }
  return y;
}

Window pool_window(const char* op, const Var& x, const PoolOptions& options) {
  Window window;
  const int axes = x.rank() - 2;
  const Shape& stride = options.stride.empty() ? options.kernel : options.stride;
  for (int i = 0; i < axes; ++i) {
    const int k = 3 - axes + i;
    window.kernel[k] = at(op, options.kernel, i, axes);
    window.stride[k] = at(op, stride, i, axes);
    window.dilation[k] = at(op, options.dilation, i, axes);
    const std::int64_t padding = at(op, options.padding, i, axes);
    check(window.kernel[k] >= 1 && window.stride[k] >= 1 && window.dilation[k] >= 1 &&
              padding >= 0 && 2 * padding <= window.kernel[k],
          "{}: out of range: kernel {}, stride {}, dilation {}, padding {}", op, window.kernel[k],
          window.stride[k], window.dilation[k], padding);
    window.before[k] = padding;
    window.after[k] = padding;
    const std::int64_t in = x.shape()[2 + i];
    const std::int64_t room = in + 2 * padding - window.dilation[k] * (window.kernel[k] - 1) - 1;
    check(room >= 0, "{}: a kernel of {} does not fit in axis {} of {}", op, window.kernel[k],
          2 + i, x.shape());
    const std::int64_t left = room % window.stride[k];
    // Adds one more window, unless it would start beyond the input and its padding on the left.
    const std::int64_t next_start = (room / window.stride[k] + 1) * window.stride[k];
    if (options.ceil_mode && left > 0 && next_start < in + padding)
      window.after[k] += window.stride[k] - left;
  }
  return window;
}

// dy in the memory order of its images.
Tensor like_images(const Tensor& dy, const Shape& order) {
  if (dy.permute(order).contiguous()) return dy;
  Tensor y = Tensor::empty_ordered(dy.shape(), order, dy.dtype(), dy.device());
  copy_into(dy, y);
  return y;
}

Tensor pooled(const Tensor& x, const Window& window, Dtype dtype) {
  Shape shape = x.shape();
  for (int i = 0; i < 3; ++i) shape[2 + i] = window.output_size(i, x.size(2 + i));
  return Tensor::empty_ordered(shape, x.memory_order(), dtype, x.device());
}

}  // namespace

Tensor with_three_spatial_axes(Tensor x) {
  while (x.rank() < 5) x = x.unsqueeze(2);
  return x;
}

Tensor with_rank(Tensor x, int rank) {
  while (x.rank() > rank) x = x.squeeze(2);
  return x;
}

PerSampleGrad for_samples(PerSampleGrad gradient, SampleAxis samples) {
  return samples.is_mixed() ? PerSampleGrad::materialized(gradient.sum().unsqueeze(0)) : gradient;
}

Var conv(const Var& images, const Var& weights, const std::optional<Var>& b,
         const ConvOptions& options) {
  check_conv(images, weights, b, options);
  Var image = images, w = weights;
  cast_inputs(conv_op, {&image, &w});
  check(image.dtype() == w.dtype(), "conv: dtypes differ: input is {}, weight {}",
        name(image.dtype()), name(w.dtype()));
  Window window = conv_window(image, w, options);
  const Var x = padded(image, window, options.mode);
  Shape touched;
  for (int i = 1; i < x.rank(); ++i) touched.push_back(i);
  const SampleAxis samples = preserve_sample_axis(conv_op, x, touched);
  // Stored channels-last for forward, backward and the weight's gradient.
  const Tensor input = channels_last(with_three_spatial_axes(x.value()));
  const Tensor weight = with_three_spatial_axes(w.value());
  const Tensor kept = w.needs_grad() ? input : input.outline();
  const int rank = x.rank();
  const Tensor y = conv(input, weight, b ? b->value() : Tensor(), window);
  std::vector<Var> inputs{x, w};
  if (b) inputs.push_back(*b);
  if (tracing()) trace_attributes(window_attributes(window));
  return x.tape().record(
      conv_op, inputs, with_rank(y, rank), samples,
      [=, shape = w.shape(), biased = b.has_value()](const Tensor& d, Adjoint& adjoint) {
        const Tensor dy = channels_last(with_three_spatial_axes(d));
        if (adjoint.wants(0))
          adjoint.input(0, with_rank(conv_data(dy, weight, window, kept.shape()), rank));
        if (adjoint.wants(1))
          adjoint.shared(1, for_samples(PerSampleGrad::patches(dy, kept, window, shape), samples));
        if (biased && adjoint.wants(2))
          adjoint.shared(2,
                         for_samples(PerSampleGrad::materialized(sum_f32(dy, {2, 3, 4})), samples));
      });
}

Var max_pool(const Var& x, const PoolOptions& options) {
  check_images(max_pool_op, x);
  const Window window = pool_window("max_pool", x, options);
  Shape touched;
  for (int i = 2; i < x.rank(); ++i) touched.push_back(i);
  const Tensor input = with_three_spatial_axes(x.value());
  constexpr std::int64_t max_in_byte = 255;
  Tensor y = pooled(input, window, x.dtype());
  Tensor argmax = pooled(input, window, window.positions() <= max_in_byte ? Dtype::u8 : Dtype::i32);
  backend(y.device()).max_pool(input.view(), window, y.view(), argmax.view());
  const int rank = x.rank();
  if (tracing()) trace_attributes(window_attributes(window));
  return x.tape().record(
      max_pool_op, {x}, with_rank(y, rank), preserve_sample_axis(max_pool_op, x, touched),
      [argmax, window, rank, shape = input.shape(), order = input.memory_order()](
          const Tensor& dy, Adjoint& adjoint) {
        Tensor dx = Tensor::empty_ordered(shape, order, dy.dtype(), dy.device());
        backend(dy.device())
            .max_pool_grad(like_images(with_three_spatial_axes(dy), order).view(), argmax.view(),
                           window, dx.view());
        adjoint.input(0, with_rank(dx, rank));
      });
}

Var avg_pool(const Var& x, const PoolOptions& options) {
  check_images(avg_pool_op, x);
  const Window window = pool_window("avg_pool", x, options);
  Shape touched;
  for (int i = 2; i < x.rank(); ++i) touched.push_back(i);
  const Tensor input = with_three_spatial_axes(x.value());
  Tensor y = pooled(input, window, x.dtype());
  const bool counted = options.count_padding;
  backend(y.device()).avg_pool(input.view(), window, counted, y.view());
  const int rank = x.rank();
  if (tracing()) trace_attributes(window_attributes(window, counted));
  return x.tape().record(
      avg_pool_op, {x}, with_rank(y, rank), preserve_sample_axis(avg_pool_op, x, touched),
      [window, counted, rank, shape = input.shape(), order = input.memory_order()](
          const Tensor& dy, Adjoint& adjoint) {
        Tensor dx = Tensor::empty_ordered(shape, order, dy.dtype(), dy.device());
        backend(dy.device())
            .avg_pool_grad(like_images(with_three_spatial_axes(dy), order).view(), window, counted,
                           dx.view());
        adjoint.input(0, with_rank(dx, rank));
      });
}

Var adaptive_avg_pool(const Var& x, const Shape& output) {
  const int axes = x.rank() - 2;
  check(output.rank() == axes, "adaptive_avg_pool: output {} does not fit the input {}", output,
        x.shape());
  Var y = x;
  for (int i = 0; i < axes; ++i) {
    const std::int64_t in = x.shape()[2 + i];
    const std::int64_t out = output[i];
    check(out >= 1 && in >= 1, "adaptive_avg_pool: output {} does not fit the input {}", output,
          x.shape());
    std::vector<double> matrix(static_cast<std::size_t>(out * in));
    for (std::int64_t o = 0; o < out; ++o) {
      const std::int64_t begin = o * in / out;
      const std::int64_t end = ((o + 1) * in + out - 1) / out;
      for (std::int64_t j = begin; j < end; ++j)
        matrix[static_cast<std::size_t>(o * in + j)] = 1.0 / static_cast<double>(end - begin);
    }
    y = map_axis(y, 2 + i, Tensor::from(matrix, {out, in}));
  }
  return y;
}

}  // namespace sotto
