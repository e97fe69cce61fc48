#include "autograd/ops/reductions.h"

#include <algorithm>
#include <cmath>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op sum_op("sum", {.captures = Op::Captures::shared,
                        .precision = Op::Precision::f32,
                        .batchable = true});
const Op norm_op("norm", {.captures = Op::Captures::shared, .precision = Op::Precision::f32});
const Op softmax_op("softmax", {.captures = Op::Captures::shared, .precision = Op::Precision::f32});
const Op log_softmax_op("log_softmax",
                        {.captures = Op::Captures::shared, .precision = Op::Precision::f32});
const Op map_axis_op("map_axis", {.captures = Op::Captures::shared});

bool contains(const Shape& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The axes, normalized; all axes of x if the list is empty.
Shape axes_of(const char* op, const Var& x, const Shape& axes) {
  Shape all;
  for (int i = 0; axes.empty() && i < x.rank(); ++i) all.push_back(i);
  for (const std::int64_t axis : axes) {
    const int at = normalize_axis(op, static_cast<int>(axis), x.rank());
    check(!contains(all, at), "{}: axis {} twice in {}", op, at, axes);
    all.push_back(at);
  }
  return all;
}

// Sums over the samples usually come from a loss or from batch norm.
constexpr const char* advice =
    "of a loss, return one loss for each row; the engine averages (mean_per_sample and "
    "sum_per_sample stay within a row); of activations, use group_norm, layer_norm or "
    "instance_norm for batch norm (nn::group_norm_for_batch_norm converts one)";

SampleAxis reduced_samples(const Op& op, const Var& x, const Shape& axes, bool keepdim) {
  const SampleAxis samples = preserve_sample_axis(op, x, axes, advice);
  if (!samples.batched() || keepdim) return samples;
  int axis = samples.axis();
  for (const std::int64_t gone : axes) axis -= gone < samples.axis();
  return axis;
}

// The shape with size 1 at `axes`.
Shape kept_shape(const Shape& x, const Shape& axes) {
  Shape shape = x;
  for (const std::int64_t axis : axes) shape[static_cast<int>(axis)] = 1;
  return shape;
}

double count(const Var& x, const Shape& axes) {
  double product = 1;
  for (const std::int64_t axis : axes)
    product *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  return product;
}

Shape all_but_samples(const Var& x) {
  Shape axes;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != x.samples().axis()) axes.push_back(i);
  }
  return axes;
}

Var softmax_rows(const Op& op, Var x, int axis, bool logarithm) {
  cast_inputs(op, {&x});
  axis = normalize_axis(op.name, axis, x.rank());
  const SampleAxis samples = preserve_sample_axis(op, x, {axis});
  const auto last = [axis](const Tensor& t) { return contiguous(t.transpose(axis, -1)); };
  const Tensor rows = last(x.value());
  Tensor y = Tensor::empty(rows.shape(), rows.dtype(), rows.device());
  backend(y.device()).softmax(rows.view(), logarithm, y.view());
  if (tracing()) trace_attributes({{"axis", axis}});
  return x.tape().record(
      op, {x}, y.transpose(axis, -1), samples,
      [y, last, axis, logarithm](const Tensor& dy, Adjoint& adjoint) {
        Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
        backend(y.device()).softmax_grad(y.view(), last(dy).view(), logarithm, dx.view());
        adjoint.input(0, dx.transpose(axis, -1));
      });
}

}  // namespace

Var sum(const Var& input, const Shape& wanted, bool keepdim) {
  Var x = input;
  const Shape axes = axes_of("sum", x, wanted);
  // A sum in f32 reads 16 bits as they are.
  const bool reads_16bit =
      !axes.empty() && is_16bit(x.dtype()) && dtype_for(sum_op, {&x}) == Dtype::f32;
  if (!reads_16bit) cast_inputs(sum_op, {&x});
  const Tensor y = axes.empty()  ? x.value()
                   : reads_16bit ? sum_f32(x.value(), axes, keepdim)
                                 : sum(x.value(), axes, keepdim);
  if (tracing()) trace_attributes({{"axes", axes}, {"keepdim", keepdim}});
  return x.tape().record(sum_op, {x}, y, reduced_samples(sum_op, x, axes, keepdim),
                         [shape = x.shape(), axes](const Tensor& dy, Adjoint& adjoint) {
                           const Tensor kept =
                               reshape(dy, adjoint.with_batch_dims(kept_shape(shape, axes)));
                           adjoint.input(0, kept.expand(adjoint.with_batch_dims(shape)));
                         });
}

Var mean(const Var& x, const Shape& wanted, bool keepdim) {
  const Shape axes = axes_of("mean", x, wanted);
  preserve_sample_axis("mean", x, axes, advice);
  return affine(sum(x, axes, keepdim), 1 / count(x, axes), 0);
}

Var variance(const Var& x, const Shape& wanted, bool keepdim, double correction) {
  const Shape axes = axes_of("variance", x, wanted);
  preserve_sample_axis("variance", x, axes);
  const Var deviation = sub(x, mean(x, axes, true));
  return affine(sum(square(deviation), axes, keepdim), 1 / (count(x, axes) - correction), 0);
}

Var standard_deviation(const Var& x, const Shape& axes, bool keepdim, double correction) {
  return sqrt(variance(x, axes, keepdim, correction));
}

Var norm(const Var& input, const Shape& wanted, bool keepdim) {
  Var x = input;
  cast_inputs(norm_op, {&x});
  const Shape axes = axes_of("norm", x, wanted);
  const Tensor y = unary(unary_index<functors::Sqrt>, sum(mul(x.value(), x.value()), axes, true));
  const Tensor value = keepdim ? y : reshape(y, sum(x.value(), axes, false).shape());
  if (tracing()) trace_attributes({{"axes", axes}, {"keepdim", keepdim}});
  return x.tape().record(norm_op, {x}, value, reduced_samples(norm_op, x, axes, keepdim),
                         [x = x.value(), y](const Tensor& dy, Adjoint& adjoint) {
                           // If the norm is zero, so is x, and any divisor works.
                           const Tensor divisor = where(y, y, full({}, 1, y.dtype(), y.device()));
                           const Tensor slope =
                               binary(binary_index<functors::Div>, reshape(dy, y.shape()), divisor);
                           adjoint.input(0, mul(x, slope));
                         });
}

Var p_norm(const Var& input, double p, const Shape& axes, bool keepdim) {
  check(p > 0, "p_norm: p is {}", p);
  const Var x = to_f32(input);
  if (p == 2) return norm(x, axes, keepdim);
  const Var size = abs(x);
  if (p == 1) return sum(size, axes, keepdim);
  const Var max = amax(size, axes, true);
  if (std::isinf(p)) return keepdim ? max : sum(max, axes);
  // Scaled by the largest element, so that powers neither overflow nor underflow.
  const Var unit = untracked(x.tape(), max.value(), max.samples());
  const Var one = x.tape().constant(full({}, 1, x.dtype(), x.value().device()));
  const Var powers = sum(pow(size / where(unit, unit, one), p), axes, true);
  const Var y = unit * pow(where(unit, powers, one), 1 / p);
  return keepdim ? y : sum(y, axes);
}

Var logsumexp(const Var& input, const Shape& wanted, bool keepdim) {
  const Var x = to_f32(input);
  const Shape axes = axes_of("logsumexp", x, wanted);
  const SampleAxis samples = preserve_sample_axis("logsumexp", x, axes);
  // The shift cancels, so it needs no gradient.
  const Var shift = untracked(x.tape(), reduce(Reduction::max, x.value(), axes, true), samples);
  if (tracing()) explain_value("max", {x}, {{"axes", axes}}, shift);
  Var y = add(log(sum(exp(sub(x, shift)), axes, true)), shift);
  for (int i = x.rank() - 1; i >= 0 && !keepdim; --i) {
    if (contains(axes, i)) y = squeeze(y, i);
  }
  return y;
}

Var sum_per_sample(const Var& x) {
  const Shape axes = all_but_samples(x);
  return axes.empty() ? x : sum(x, axes);
}

Var mean_per_sample(const Var& x) {
  const Shape axes = all_but_samples(x);
  return axes.empty() ? x : mean(x, axes);
}

Var softmax(const Var& x, int axis) { return softmax_rows(softmax_op, x, axis, false); }

Var log_softmax(const Var& x, int axis) { return softmax_rows(log_softmax_op, x, axis, true); }

Var map_axis(const Var& x, int axis, const Tensor& matrix) {
  axis = normalize_axis("map_axis", axis, x.rank());
  check(matrix.rank() == 2 && matrix.size(1) == x.shape()[axis],
        "map_axis: matrix {} on axis {} of {}", matrix.shape(), axis, x.shape());
  const auto along = [axis](const Tensor& t, const Tensor& m) {
    const Tensor last = contiguous(t.transpose(axis, -1));
    Shape shape = last.shape();
    shape[shape.rank() - 1] = m.size(1);
    const Tensor rows = by_sample(last, SampleAxis::shared(), 1).squeeze(0);
    return reshape(gemm(rows, m), shape).transpose(axis, -1);
  };
  const Tensor m = to_dtype(matrix, x.dtype());
  if (tracing()) trace_attributes({{"axis", axis}, {"matrix", m}});
  return x.tape().record(
      map_axis_op, {x}, along(x.value(), m.transpose(0, 1)),
      preserve_sample_axis(map_axis_op, x, {axis}),
      [m, along](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, along(dy, m)); });
}

}  // namespace sotto
