#include "autograd/ops/shape_ops.h"

#include <algorithm>
#include <numeric>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op reshape_op("reshape", {.captures = Op::Captures::shared});
const Op permute_op("permute", {.captures = Op::Captures::shared});
const Op expand_op("expand", {.captures = Op::Captures::shared, .batchable = true});
const Op slice_op("slice", {.captures = Op::Captures::shared, .batchable = true});
const Op views_op("views", {.captures = Op::Captures::shared, .changes_sample_count = true});
const Op concat_op("concat", {.captures = Op::Captures::shared});
constexpr const char* views_advice = "join_views puts several views of each sample into one batch";
const Op take_op("take", {.captures = Op::Captures::shared});

// Records y, which has x's elements in order under another shape.
Var reshaped(const Var& x, const Tensor& y, SampleAxis samples) {
  const Shape shape = x.shape();
  return x.tape().record(
      reshape_op, {x}, y, samples,
      [shape](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, reshape(dy, shape)); },
      [shape](const PerSampleGrad& gradient) { return gradient.reshaped(shape); });
}

// Replaces -1 as for a batch of one sample if the batch is empty and its size cannot be inferred.
Shape filled_in(const Var& x, const Shape& shape) {
  const bool empty = x.samples().batched() && x.shape()[x.samples().axis()] == 0;
  if (!empty || std::find(shape.begin(), shape.end(), 0) == shape.end()) return shape;
  // The product of all sizes except 0 and -1.
  const auto elements = [](const Shape& sizes) {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) product *= std::max<std::int64_t>(size, 1);
    return product;
  };
  Shape y;
  for (const std::int64_t size : shape)
    y.push_back(size == -1 ? elements(x.shape()) / elements(shape) : size);
  return y;
}

std::vector<Var> in_one_type(const Op& op, std::vector<Var> values) {
  std::vector<Var*> places;
  for (Var& x : values) places.push_back(&x);
  cast_inputs(op, places);
  return values;
}

}  // namespace

Var reshape(const Var& x, const Shape& wanted) {
  const Shape shape = filled_in(x, wanted);
  const Tensor y = reshape(x.value(), shape);
  if (y.shape() == x.shape()) return x;
  return reshaped(x, y, reshaped_samples(reshape_op, x, y.shape()));
}

Var flatten(const Var& x, int start, int end) {
  start = normalize_axis("flatten", start, x.rank());
  end = normalize_axis("flatten", end, x.rank());
  check(start <= end, "flatten: axes {} to {} of {}", start, end, x.shape());
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > start && i <= end) {
      shape[start] *= x.shape()[i];
    } else {
      shape.push_back(x.shape()[i]);
    }
  }
  return reshape(x, shape);
}

Var permute(const Var& x, const Shape& axes) {
  const Tensor y = x.value().permute(axes);
  Shape inverse = Shape::filled(axes.rank(), 0);
  SampleAxis samples = x.samples();
  for (int k = 0; k < axes.rank(); ++k) {
    const int from = normalize_axis("permute", static_cast<int>(axes[k]), x.rank());
    inverse[from] = k;
    if (x.samples().batched() && x.samples().axis() == from) samples = k;
  }
  if (tracing()) trace_attributes({{"axes", axes}});
  return x.tape().record(
      permute_op, {x}, y, samples,
      [inverse](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, dy.permute(inverse)); },
      [inverse](const PerSampleGrad& gradient) { return gradient.permuted(inverse); });
}

Var transpose(const Var& x, int a, int b) {
  Shape axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  std::swap(axes[normalize_axis("transpose", a, x.rank())],
            axes[normalize_axis("transpose", b, x.rank())]);
  return permute(x, axes);
}

Var unsqueeze(const Var& x, int axis) {
  axis = normalize_axis("unsqueeze", axis, x.rank() + 1);
  const Tensor y = x.value().unsqueeze(axis);
  SampleAxis samples = x.samples();
  if (samples.batched() && samples.axis() >= axis) samples = samples.axis() + 1;
  return reshaped(x, y, samples);
}

Var squeeze(const Var& x, int axis) {
  axis = normalize_axis("squeeze", axis, x.rank());
  const Tensor y = x.value().squeeze(axis);
  SampleAxis samples = preserve_sample_axis(reshape_op, x, {axis});
  if (samples.batched() && samples.axis() > axis) samples = samples.axis() - 1;
  return reshaped(x, y, samples);
}

Var expand(const Var& x, const Shape& shape) {
  Shape full = shape;
  const int batch_dims = full.rank() - x.rank();
  check(batch_dims >= 0, "expand: {} does not expand to {}", x.shape(), shape);
  for (int i = 0; i < full.rank(); ++i) {
    check(full[i] >= 0 || (full[i] == -1 && i >= batch_dims), "expand: {} does not expand to {}",
          x.shape(), shape);
    if (full[i] == -1) full[i] = x.shape()[i - batch_dims];
  }
  const Tensor y = x.value().expand(full);
  return x.tape().record(expand_op, {x}, y, broadcast_samples(expand_op, {x}, full),
                         [](const Tensor& dy, Adjoint& adjoint) { adjoint.broadcast(0, dy); });
}

Var slice(const Var& x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step) {
  axis = normalize_axis("slice", axis, x.rank());
  const Tensor y = x.value().slice(axis, start, stop, step);
  if (tracing())
    trace_attributes({{"axis", axis}, {"start", start}, {"stop", stop}, {"step", step}});
  return x.tape().record(
      slice_op, {x}, y, preserve_sample_axis(slice_op, x, {axis}),
      [shape = x.shape(), axis, start, stop, step](const Tensor& dy, Adjoint& adjoint) {
        const Tensor dx = zeros(adjoint.with_batch_dims(shape), dy.dtype(), dy.device());
        copy_into(dy, dx.slice(axis + adjoint.batch_dims(), start, stop, step));
        adjoint.input(0, dx);
      });
}

Var select(const Var& x, int axis, std::int64_t index) {
  axis = normalize_axis("select", axis, x.rank());
  const std::int64_t at = index < 0 ? index + x.shape()[axis] : index;
  check(at >= 0 && at < x.shape()[axis], "select: index {} of axis {} in {}", index, axis,
        x.shape());
  return squeeze(slice(x, axis, at, at + 1), axis);
}

Var concat(const std::vector<Var>& given, int axis) {
  check(!given.empty(), "concat: no values");
  const std::vector<Var> parts = in_one_type(concat_op, given);
  const auto batched =
      std::find_if(parts.begin(), parts.end(), [](const Var& x) { return x.samples().batched(); });
  const Var& batch_dims = batched == parts.end() ? parts[0] : *batched;
  axis = normalize_axis("concat", axis, batch_dims.rank());
  SampleAxis samples = preserve_sample_axis(concat_op, batch_dims, {axis}, views_advice);
  std::vector<Tensor> values;
  std::vector<std::int64_t> starts{0};
  for (const Var& x : parts) {
    check(x.rank() == batch_dims.rank(), "concat: ranks differ: {} and {}", x.shape(),
          batch_dims.shape());
    if (x.samples().is_mixed()) samples = SampleAxis::mixed();
    if (samples.batched() && x.samples().batched() && !(x.samples() == samples))
      samples = x.tape().mix(concat_op.name, x, views_advice);
    Shape shape = x.shape();
    if (samples.batched() && x.samples().is_shared()) {
      if (shape[samples.axis()] != 1)
        samples = x.tape().mix(concat_op.name, x, views_advice);
      else
        shape[samples.axis()] = batch_dims.shape()[samples.axis()];
    }
    values.push_back(x.value().expand(shape));
    starts.push_back(starts.back() + shape[axis]);
  }
  if (tracing()) trace_attributes({{"axis", axis}});
  return batch_dims.tape().record(concat_op, parts, concat(values, axis), samples,
                                  [axis, starts](const Tensor& dy, Adjoint& adjoint) {
                                    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
                                      adjoint.broadcast(static_cast<int>(i),
                                                        dy.slice(axis, starts[i], starts[i + 1]));
                                    }
                                  });
}

Var join_views(const std::vector<Var>& given) {
  check(!given.empty(), "join_views: no values");
  const std::vector<Var> views = in_one_type(views_op, given);
  const Var& batch_dims = views[0];
  const int axis = batch_dims.samples().axis();
  std::vector<Tensor> values;
  for (const Var& x : views) {
    check(x.samples() == batch_dims.samples() && x.shape() == batch_dims.shape(),
          "join_views: different shapes {} and {}, or samples along different axes", x.shape(),
          batch_dims.shape());
    values.push_back(x.value());
  }
  const std::int64_t rows = batch_dims.shape()[axis];
  return batch_dims.tape().record(
      views_op, views, concat(values, axis), axis,
      [axis, rows](const Tensor& dy, Adjoint& adjoint) {
        for (std::int64_t k = 0; rows > 0 && k < dy.size(axis) / rows; ++k) {
          adjoint.input(static_cast<int>(k), dy.slice(axis, k * rows, (k + 1) * rows));
        }
      });
}

std::vector<Var> split_views(const Var& x, std::int64_t count) {
  const int axis = x.samples().axis();
  const std::int64_t rows = x.tape().sample_count();
  check(count >= 1 && x.shape()[axis] == count * rows,
        "split_views: {} views do not make up {} rows of {} samples", count, x.shape()[axis], rows);
  std::vector<Var> views;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t begin = k * rows, end = begin + rows;
    const auto backward = [=, shape = x.shape()](const Tensor& dy, Adjoint& adjoint) {
      const Tensor dx = zeros(shape, dy.dtype(), dy.device());
      copy_into(dy, dx.slice(axis, begin, end));
      adjoint.input(0, dx);
    };
    views.push_back(
        x.tape().record(views_op, {x}, x.value().slice(axis, begin, end), axis, backward));
  }
  return views;
}

Var stack(const std::vector<Var>& parts, int axis) {
  std::vector<Var> raised;
  for (const Var& x : parts) raised.push_back(unsqueeze(x, axis));
  return concat(raised, axis);
}

Var take(const Var& x, int axis, const std::vector<std::int64_t>& ids) {
  axis = normalize_axis("take", axis, x.rank());
  const Tensor index = Tensor::from(ids, {static_cast<std::int64_t>(ids.size())});
  const Tensor y = gather(x.value(), index, axis);
  if (tracing()) trace_attributes({{"axis", axis}, {"ids", index}});
  return x.tape().record(take_op, {x}, y, preserve_sample_axis(take_op, x, {axis}),
                         [index, axis, size = x.shape()[axis]](const Tensor& dy, Adjoint& adjoint) {
                           adjoint.input(0, scatter_add(dy, index, axis, size));
                         });
}

Var flip(const Var& x, const Shape& axes) {
  preserve_sample_axis("flip", x, axes);
  Var y = x;
  for (const std::int64_t axis : axes) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(x.value().size(static_cast<int>(axis))));
    std::iota(ids.rbegin(), ids.rend(), 0);
    y = take(y, static_cast<int>(axis), ids);
  }
  return y;
}

Var roll(const Var& x, int axis, std::int64_t shift) {
  preserve_sample_axis("roll", x, {axis});
  const std::int64_t n = x.value().size(axis);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(((i - shift) % n + n) % n);
  return take(x, axis, ids);
}

Var pad(const Var& x, int axis, std::int64_t before, std::int64_t after, PadMode mode) {
  const std::int64_t n = x.value().size(axis);
  check(before >= 0 && after >= 0, "pad: {} before and {} after", before, after);
  if (before == 0 && after == 0) return x;
  check(mode != PadMode::reflect || std::max(before, after) < std::max<std::int64_t>(n, 1),
        "pad: reflecting {} and {} elements of an axis of size {}", before, after, n);
  check(mode != PadMode::replicate || n > 0, "pad: replicating an axis of size 0");
  check(mode != PadMode::circular || std::max(before, after) <= n,
        "pad: wrapping {} and {} elements of an axis of size {}", before, after, n);
  preserve_sample_axis("pad", x, {axis});
  std::vector<std::int64_t> ids;
  for (std::int64_t i = -before; i < n + after; ++i) {
    const bool inside = i >= 0 && i < n;
    switch (mode) {
      case PadMode::zeros: ids.push_back(inside ? i : -1); break;
      case PadMode::reflect: ids.push_back(i < 0 ? -i : i < n ? i : 2 * (n - 1) - i); break;
      case PadMode::replicate: ids.push_back(std::clamp<std::int64_t>(i, 0, n - 1)); break;
      case PadMode::circular: ids.push_back((i + n) % n); break;
    }
  }
  return take(x, axis, ids);
}

}  // namespace sotto
