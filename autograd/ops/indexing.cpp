#include "autograd/ops/indexing.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op gather_op("gather", {.captures = Op::Captures::shared});
const Op scatter_op("scatter", {.captures = Op::Captures::shared});
const Op order_op("sort", {.captures = Op::Captures::shared});
const Op split_op("split", {.captures = Op::Captures::shared});

// The sample axis of an op with ids: x and ids must share it, and it must not be the indexed axis.
SampleAxis indexed_samples(const Op& op, const Var& x, int axis, const Var& ids) {
  if (x.samples().is_mixed() || ids.samples().is_mixed()) return SampleAxis::mixed();
  const bool agree = x.samples() == ids.samples();
  if (!agree) return x.tape().mix(op.name, x.samples().batched() ? x : ids);
  return preserve_sample_axis(op, x, {axis});
}

// One part of a value for each size, whose gradients are joined once: slices would each make one of
// zeros around its own, and add them up.
std::vector<Var> parts_of(const Var& x, int axis, SampleAxis samples,
                          const std::vector<std::int64_t>& sizes) {
  const Tensor& value = x.value();
  const std::int64_t rows = samples.batched() ? value.size(samples.axis()) : 0;
  const Tensor nothing = zeros({rows, 0}, value.dtype(), value.device());
  std::vector<Tensor> values;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    values.push_back(value.slice(axis, start, start + size));
    start += size;
  }
  const auto gradients = std::make_shared<std::vector<Tensor>>(sizes.size());
  std::vector<Tensor> outlines;
  for (const Tensor& part : values) outlines.push_back(part.outline());
  const Var whole = x.tape().record(
      split_op, {x}, nothing, samples.batched() ? SampleAxis(0) : samples,
      [=, device = value.device()](const Tensor&, Adjoint& adjoint) {
        std::vector<Tensor> all = std::exchange(*gradients, std::vector<Tensor>(gradients->size()));
        for (std::size_t k = 0; k < all.size(); ++k) {
          if (!all[k].defined()) all[k] = zeros(outlines[k].shape(), outlines[k].dtype(), device);
        }
        adjoint.input(0, concat(all, axis));
      });
  std::vector<Var> parts;
  for (std::size_t k = 0; k < values.size(); ++k) {
    parts.push_back(x.tape().record(split_op, {whole}, values[k], samples,
                                    [=](const Tensor& dy, Adjoint& adjoint) {
                                      (*gradients)[k] = dy;
                                      adjoint.input(0, nothing);
                                    }));
  }
  return parts;
}

// Zeros of `shape`, to which `src` is added at its ids.
Var scattered(const Var& src, int axis, const Var& ids, const Shape& shape) {
  const SampleAxis samples = indexed_samples(scatter_op, src, axis, ids);
  const Tensor y = put_along(src.value(), ids.value(), axis, shape);
  if (tracing()) trace_attributes({{"axis", axis}, {"ids", std::vector{ids}}, {"shape", shape}});
  return src.tape().record(scatter_op, {src}, y, samples,
                           [ids = ids.value(), axis](const Tensor& dy, Adjoint& adjoint) {
                             adjoint.input(0, take_along(dy, ids, axis));
                           });
}

// Repeats a shared x for each sample of the ids, with the sample axis in front, and gathers from
// it.
Var gather_shared(const Var& x, int axis, const Var& ids) {
  const int s = ids.samples().axis();
  Tape& tape = ids.tape();
  Shape one_each = Shape::filled(x.rank() + 1, 1);
  one_each[0] = ids.shape()[s];
  const Var zero = untracked(tape, zeros(one_each, x.dtype(), x.value().device()), 0);
  if (tracing()) explain_value("repeated", {}, {}, zero);
  const Var copies = add(zero, x);
  Shape to_front{s}, back;
  for (int i = 0; i < ids.rank(); ++i) {
    if (i != s) to_front.push_back(i);
    back.push_back(i < s ? i + 1 : i == s ? 0 : i);
  }
  const Var own = unsqueeze(permute(ids, to_front), s + 1);
  return permute(squeeze(gather(copies, axis + 1, own), s + 1), back);
}

}  // namespace

Var gather(const Var& x, int axis, const Var& ids) {
  axis = normalize_axis("gather", axis, x.rank());
  check(ids.dtype() == Dtype::i64 && ids.rank() == x.rank(),
        "gather: ids {} of shape {} for a value of shape {}", name(ids.dtype()), ids.shape(),
        x.shape());
  if (x.samples().is_shared() && ids.samples().batched()) return gather_shared(x, axis, ids);
  const SampleAxis samples = indexed_samples(gather_op, x, axis, ids);
  const Tensor y = take_along(x.value(), ids.value(), axis);
  if (tracing()) trace_attributes({{"axis", axis}, {"ids", std::vector{ids}}});
  return x.tape().record(
      gather_op, {x}, y, samples,
      [ids = ids.value(), axis, shape = x.shape()](const Tensor& dy, Adjoint& adjoint) {
        adjoint.input(0, put_along(dy, ids, axis, shape));
      });
}

Var scatter_add(const Var& x, int axis, const Var& ids, const Var& src) {
  axis = normalize_axis("scatter_add", axis, x.rank());
  check(ids.dtype() == Dtype::i64 && ids.shape() == src.shape() && ids.rank() == x.rank(),
        "scatter_add: ids {} of shape {} and values {} for a target of shape {}", name(ids.dtype()),
        ids.shape(), src.shape(), x.shape());
  return add(x, scattered(src, axis, ids, x.shape()));
}

std::vector<Var> split(const Var& x, int axis, const std::vector<std::int64_t>& sizes) {
  axis = normalize_axis("split", axis, x.rank());
  const SampleAxis samples = preserve_sample_axis(split_op, x, {axis});
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  check(total == x.shape()[axis], "split: parts with {} elements in total do not fit axis {} of {}",
        total, axis, x.shape());
  for (const std::int64_t size : sizes) check(size >= 0, "split: a part of size {}", size);
  if (x.needs_grad() && !x.samples().is_shared()) return parts_of(x, axis, samples, sizes);
  std::vector<Var> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(slice(x, axis, start, start + size));
    start += size;
  }
  return parts;
}

std::vector<Var> chunk(const Var& x, int axis, std::int64_t parts) {
  check(parts >= 1, "chunk: {} parts", parts);
  const std::int64_t n = x.value().size(axis),
                     size = std::max<std::int64_t>(1, (n + parts - 1) / parts);
  std::vector<std::int64_t> sizes;
  for (std::int64_t start = 0; start < n || sizes.empty(); start += size)
    sizes.push_back(std::min(size, n - start));
  return split(x, axis, sizes);
}

Var repeat(const Var& x, const Shape& counts) {
  check(counts.rank() >= x.rank(), "repeat: fewer counts {} than axes of {}", counts, x.shape());
  Var y = x;
  while (y.rank() < counts.rank()) y = unsqueeze(y, 0);
  for (int axis = 0; axis < counts.rank(); ++axis) {
    check(counts[axis] >= 0, "repeat: negative counts {}", counts);
    std::vector<std::int64_t> ids;
    for (std::int64_t copy = 0; copy < counts[axis]; ++copy) {
      for (std::int64_t i = 0; i < y.shape()[axis]; ++i) ids.push_back(i);
    }
    if (counts[axis] != 1) y = take(y, axis, ids);
  }
  return y;
}

namespace {

// Zeroes the elements of the last two axes for which keep(row, column) is false.
template <class Keep>
Var kept(const char* op, const Var& x, Keep keep) {
  check(x.rank() >= 2, "{}: needs two or more axes, not {}", op, x.shape());
  const std::int64_t rows = x.value().size(-2), columns = x.value().size(-1);
  std::vector<std::int64_t> mask;
  for (std::int64_t i = 0; i < rows * columns; ++i) mask.push_back(keep(i / columns, i % columns));
  // The mask does not vary with the samples, so rows and columns must not be the sample axis.
  preserve_sample_axis(op, x, {-2, -1});
  return where(x.tape().constant(Tensor::from(mask, {rows, columns})), x,
               x.tape().constant(zeros({}, x.dtype())));
}

}  // namespace

Var tril(const Var& x, std::int64_t diagonal) {
  return kept("tril", x, [diagonal](std::int64_t row, std::int64_t column) {
    return column <= row + diagonal;
  });
}

Var triu(const Var& x, std::int64_t diagonal) {
  return kept("triu", x, [diagonal](std::int64_t row, std::int64_t column) {
    return column >= row + diagonal;
  });
}

Var masked_fill(const Var& x, const Var& mask, double value) {
  return where(mask, x.tape().constant(full({}, value, x.dtype())), x);
}

Var argmax(const Var& x, int axis, bool keepdim) {
  axis = normalize_axis("argmax", axis, x.rank());
  const SampleAxis samples = preserve_sample_axis("argmax", x, {axis});
  const Var y = untracked(x.tape(), argmax(x.value(), axis).unsqueeze(axis), samples);
  if (tracing()) explain_value("argmax", {x}, {{"axis", axis}}, y);
  return keepdim ? y : squeeze(y, axis);
}

Var max(const Var& x, int axis, bool keepdim) {
  preserve_sample_axis("max", x, {axis});
  const Var y = gather(x, axis, argmax(x, axis, true));
  return keepdim ? y : squeeze(y, axis);
}

Var min(const Var& x, int axis, bool keepdim) {
  preserve_sample_axis("min", x, {axis});
  return affine(max(affine(x, -1, 0), axis, keepdim), -1, 0);
}

Var amax(const Var& x, const Shape& axes, bool keepdim) {
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), axes.empty());
  for (const std::int64_t axis : axes) {
    reduced[static_cast<std::size_t>(normalize_axis("amax", static_cast<int>(axis), x.rank()))] =
        true;
  }
  Var y = x;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    if (reduced[static_cast<std::size_t>(axis)]) y = max(y, axis, keepdim);
  }
  return y;
}

Var amin(const Var& x, const Shape& axes, bool keepdim) {
  return affine(amax(affine(x, -1, 0), axes, keepdim), -1, 0);
}

Var prod(const Var& x, int axis, bool keepdim) {
  axis = normalize_axis("prod", axis, x.rank());
  check(x.shape()[axis] > 0, "prod: over no elements of {}", x.shape());
  preserve_sample_axis("prod", x, {axis});
  Var y = select(x, axis, 0);
  for (std::int64_t i = 1; i < x.shape()[axis]; ++i) y = mul(y, select(x, axis, i));
  return keepdim ? unsqueeze(y, axis) : y;
}

Var cumulative_sum(const Var& x, int axis) {
  preserve_sample_axis("cumulative_sum", x, {axis});
  const std::int64_t n = x.value().size(axis);
  std::vector<double> ones;
  for (std::int64_t i = 0; i < n * n; ++i) ones.push_back(i % n <= i / n);
  return map_axis(x, axis, Tensor::from(ones, {n, n}));
}

Ordered sort(const Var& x, int axis, bool descending) {
  axis = normalize_axis("sort", axis, x.rank());
  const SampleAxis samples = preserve_sample_axis(order_op, x, {axis});
  const std::int64_t length = x.shape()[axis];
  const Tensor lines = contiguous(x.value().transpose(axis, -1));
  const std::vector<double> values = to_dtype(lines, Dtype::f64).to_vector<double>();
  std::vector<std::int64_t> ids(values.size());
  for (std::size_t start = 0; start < values.size(); start += static_cast<std::size_t>(length)) {
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(start);
    std::iota(first, first + length, 0);
    std::stable_sort(first, first + length, [&](std::int64_t a, std::int64_t b) {
      const double u = values[start + static_cast<std::size_t>(a)],
                   v = values[start + static_cast<std::size_t>(b)];
      // NaN counts as the largest value, so that the order is total.
      return descending ? v < u || (std::isnan(u) && !std::isnan(v))
                        : u < v || (std::isnan(v) && !std::isnan(u));
    });
  }
  const Tensor order = contiguous(Tensor::from(ids, lines.shape()).transpose(axis, -1));
  const Var where_from = untracked(x.tape(), order, samples);
  if (tracing())
    explain_value("argsort", {x}, {{"axis", axis}, {"descending", descending}}, where_from);
  return {gather(x, axis, where_from), where_from};
}

Ordered topk(const Var& x, std::int64_t k, int axis, bool largest) {
  axis = normalize_axis("topk", axis, x.rank());
  check(k >= 0 && k <= x.shape()[axis], "topk: k is {}, outside of axis {} of {}", k, axis,
        x.shape());
  preserve_sample_axis("topk", x, {axis});
  const Var ids = slice(sort(x, axis, largest).ids, axis, 0, k);
  return {gather(x, axis, ids), ids};
}

// Permutes one axis at a time, so that there are never more than five axes.
Var pixel_shuffle(const Var& x, std::int64_t factor) {
  check(x.rank() == 4 && factor >= 1 && x.shape()[1] % factor == 0 &&
            x.shape()[1] / factor % factor == 0,
        "pixel_shuffle: {} does not fit a factor of {}", x.shape(), factor);
  const std::int64_t n = x.shape()[0], r = factor, c = x.shape()[1] / (r * r), h = x.shape()[2],
                     w = x.shape()[3];
  const Var columns = permute(reshape(x, {n, c * r, r, h, w}), {0, 1, 3, 4, 2});
  const Var rows = permute(reshape(columns, {n, c, r, h, w * r}), {0, 1, 3, 2, 4});
  return reshape(rows, {n, c, h * r, w * r});
}

Var pixel_unshuffle(const Var& x, std::int64_t factor) {
  check(x.rank() == 4 && factor >= 1 && x.shape()[2] % factor == 0 && x.shape()[3] % factor == 0,
        "pixel_unshuffle: {} does not fit a factor of {}", x.shape(), factor);
  const std::int64_t n = x.shape()[0], r = factor, c = x.shape()[1], h = x.shape()[2] / r,
                     w = x.shape()[3] / r;
  const Var rows = permute(reshape(x, {n, c, h, r, w * r}), {0, 1, 3, 2, 4});
  const Var columns = permute(reshape(rows, {n, c * r, h, w, r}), {0, 1, 4, 2, 3});
  return reshape(columns, {n, c * r * r, h, w});
}

}  // namespace sotto
