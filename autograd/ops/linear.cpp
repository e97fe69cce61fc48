#include "autograd/ops/linear.h"

#include <algorithm>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/padded_columns.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op linear_op("linear", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});
const Op matmul_op("matmul", {.captures = Op::Captures::shared, .precision = Op::Precision::lower});
const Op embedding_op("embedding", {.captures = Op::Captures::shared});

// [.., k] -> [rows, k]
Tensor rows_of(const Tensor& x) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.size(i);
  return reshape(x, {rows, x.shape().back()});
}

// x w^T + b
Tensor affine_rows(const Tensor& x, const Tensor& w, const Tensor* b) {
  const Tensor rows = rows_of(x);
  return b ? affine(rows, w.transpose(0, 1), *b) : gemm(rows, w.transpose(0, 1));
}

Shape with_last(Shape shape, std::int64_t last) {
  shape[shape.rank() - 1] = last;
  return shape;
}

void check_linear(const Var& x, const Var& w, const std::optional<Var>& b) {
  check(w.rank() == 2 && x.rank() >= 1 && x.shape().back() == w.shape()[1],
        "linear: input {} does not fit weight {}", x.shape(), w.shape());
  check(!b || b->shape() == Shape{w.shape()[0]}, "linear: bias {} does not fit weight {}",
        b ? b->shape() : Shape{}, w.shape());
  check(w.samples().is_shared() && (!b || b->samples().is_shared()),
        "linear: weight and bias must be shared by all samples; for one weight per sample use "
        "matmul");
}

void check_ids(const Tensor& ids, std::int64_t rows) {
  if (ids.device() != cpu) return;  // the GPU's kernel handles ids past the end
  const Tensor all = contiguous(ids);
  for (const std::int64_t id :
       std::span(all.data<std::int64_t>(), static_cast<std::size_t>(all.numel())))
    check(id >= 0 && id < rows, "embedding: id {} in a table of {} rows", id, rows);
}

// A copy of the checked ids, because backward writes to the rows that they name. The padding id
// becomes negative: its row gets no gradient.
Tensor learned_ids(const Tensor& ids, std::optional<std::int64_t> padding) {
  if (!padding) return clone(ids);
  if (ids.device() != cpu) {
    const auto number = [&](std::int64_t x) {
      return full({}, static_cast<double>(x), Dtype::f64, ids.device());
    };
    const Tensor all = to_dtype(ids, Dtype::f64);
    return to_dtype(where(sub(all, number(*padding)), all, number(-1)), Dtype::i64);
  }
  std::vector<std::int64_t> learned = ids.to_vector<std::int64_t>();
  std::replace(learned.begin(), learned.end(), *padding, std::int64_t{-1});
  return Tensor::from(learned, ids.shape());
}

// Broadcasts the leading axes of a product's operand and merges them into one batch axis.
Tensor batch_of(const Tensor& x, const Shape& batch_dims) {
  Shape full = batch_dims;
  full.push_back(x.size(-2));
  full.push_back(x.size(-1));
  return reshape(x.expand(full), {batch_dims.numel(), x.size(-2), x.size(-1)});
}

Shape leading_axes(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 2)));
}

// The sample axis of a product: a leading axis of either operand, the rows of a, or the columns of
// b.
SampleAxis product_samples(const Var& a, const Var& b, const Shape& y) {
  for (const auto& [x, inner] : {std::pair(&a, a.rank() - 1), std::pair(&b, b.rank() - 2)}) {
    if (x->samples().batched() && x->samples().axis() == inner)
      return x->tape().mix(matmul_op.name, *x);
  }
  // Without the summed axis, the operands broadcast as those of an elementwise op.
  Tape& tape = a.samples().batched() ? a.tape() : b.tape();
  if (a.samples().is_mixed() || b.samples().is_mixed()) return SampleAxis::mixed();
  int axis = -1;
  for (const Var* x : {&a, &b}) {
    if (!x->samples().batched()) continue;
    const int aligned = x->samples().axis() + y.rank() - x->rank();
    if (axis >= 0 && aligned != axis) return tape.mix(matmul_op.name, *x);
    axis = aligned;
  }
  if (axis < 0) return SampleAxis::shared();
  for (const Var* x : {&a, &b}) {
    const int own = axis - (y.rank() - x->rank());
    const int inner = x == &a ? x->rank() - 1 : x->rank() - 2;
    if (x->samples().is_shared() && own >= 0 && own != inner && x->shape()[own] != 1)
      return tape.mix(matmul_op.name, *x);
  }
  return axis;
}

// sum_t dy[n, t, o] in f32 or wider. For a single position it is dy itself and not a copy, which
// private training would keep for every layer.
Tensor bias_rows(const Tensor& dy) {
  const bool single = dy.size(1) == 1 && arithmetic_type(dy.dtype()) == dy.dtype();
  return single ? dy.squeeze(1) : sum_f32(dy, {1});
}

// That of a bias from dy [n, t, o]; for `sums_only` that of all samples together, by one sum.
PerSampleGrad bias_gradient(const Tensor& dy, bool sums_only) {
  const Tensor rows = sums_only ? sum_f32(dy, {0, 1}).unsqueeze(0) : bias_rows(dy);
  return PerSampleGrad::materialized(rows);
}

// x with further rows of zeros, in `dtype`; x itself if it has so many rows.
Tensor with_zero_rows(const Tensor& x, std::int64_t rows, Dtype dtype) {
  if (x.size(0) == rows) return x;
  Shape shape = x.shape();
  shape[0] = rows;
  const Tensor y = Tensor::empty(shape, dtype, x.device());
  copy_into(x, y.slice(0, 0, x.size(0)));
  backend(y.device()).fill(0, y.slice(0, x.size(0), rows).view());
  return y;
}

// The gradient of a weight [o, i], or [i, o] if `flipped`, from out [n, t, o or more columns, of
// zeros] and in [n, t, i].
PerSampleGrad weight_gradient(const Tensor& out, const Tensor& in, const Shape& shape,
                              bool flipped) {
  if (flipped) return PerSampleGrad::outer(in, out, shape);
  return out.size(2) == shape[0] ? PerSampleGrad::outer(out, in, shape)
                                 : detail::padded_outer(out, in, shape);
}

// y[.., o] = sum_i x[.., i] w[o, i] + b[o]; if `flipped`, w is [i, o].
Var weighted(const Op& op, Var x, Var w, const std::optional<Var>& b, bool flipped) {
  cast_inputs(op, {&x, &w});
  check(x.dtype() == w.dtype(), "{}: dtypes differ: {} x {}", op.name, name(x.dtype()),
        name(w.dtype()));
  const SampleAxis samples = preserve_sample_axis(op, x, {-1});
  const Tensor matrix = flipped ? w.value().transpose(0, 1) : w.value();
  const std::int64_t outputs = matrix.size(0),
                     columns = &op == &linear_op
                                   ? padded_columns(outputs, x.dtype(), matrix.device())
                                   : outputs;
  const Tensor weight = with_zero_rows(matrix, columns, x.dtype()),
               bias = b ? with_zero_rows(value_in(*b, x.dtype()), columns, x.dtype()) : Tensor();
  const Tensor y =
      reshape(affine_rows(x.value(), weight, b ? &bias : nullptr), with_last(x.shape(), columns))
          .slice(-1, 0, outputs);
  std::vector<Var> inputs{x, w};
  if (b) inputs.push_back(*b);
  if (tracing()) trace_attributes({{"transposed", !flipped}});
  return x.tape().record(
      op, inputs, y, samples,
      [x = w.needs_grad() ? x.value() : x.value().outline(), weight, samples, flipped, outputs,
       shape = w.shape(), biased = b.has_value()](const Tensor& dy, Adjoint& adjoint) {
        // Its columns are `outputs`, or all of the product, with zeros in those behind.
        const Tensor rows = weight.slice(0, 0, dy.size(-1));
        if (adjoint.wants(0)) adjoint.input(0, reshape(gemm(rows_of(dy), rows), x.shape()));
        const Tensor out = by_sample(dy, samples, 1);
        if (adjoint.wants(1))
          adjoint.shared(1, weight_gradient(out, by_sample(x, samples, 1), shape, flipped));
        if (biased && adjoint.wants(2))
          adjoint.shared(2, bias_gradient(out.slice(2, 0, outputs), adjoint.sums_only()));
      });
}

Var product(Var a, Var b) {
  cast_inputs(matmul_op, {&a, &b});
  check(a.dtype() == b.dtype(), "matmul: dtypes differ: {} x {}", name(a.dtype()), name(b.dtype()));
  const auto batched_along = [](const Var& x, int axis) {
    return x.samples().batched() && x.samples().axis() == x.rank() + axis;
  };
  // If one operand is shared, its gradient is a product that sums over rows or columns. Samples
  // along those become a leading axis first.
  if (batched_along(a, -2) && b.samples().is_shared()) {
    return squeeze(product(unsqueeze(a, -2), unsqueeze(b, -3)), -2);
  }
  if (batched_along(b, -1) && a.samples().is_shared()) {
    return transpose(product(transpose(b, -1, -2), transpose(a, -1, -2)), -1, -2);
  }
  const Shape batch_dims =
      broadcast_shapes("matmul", leading_axes(a.shape()), leading_axes(b.shape()));
  Shape shape = batch_dims;
  shape.push_back(a.shape()[a.rank() - 2]);
  shape.push_back(b.shape().back());
  const SampleAxis samples = product_samples(a, b, shape);
  const Tensor y =
      reshape(gemm(batch_of(a.value(), batch_dims), batch_of(b.value(), batch_dims)), shape);
  return a.tape().record(
      matmul_op, {a, b}, y, samples,
      [a = b.needs_grad() ? a.value() : Tensor(), b = a.needs_grad() ? b.value() : Tensor(),
       batch_dims](const Tensor& dy, Adjoint& adjoint) {
        const Tensor d = batch_of(dy, batch_dims);
        const auto full = [&](const Tensor& batch) {
          Shape to = batch_dims;
          to.push_back(batch.size(1));
          to.push_back(batch.size(2));
          return reshape(batch, to);
        };
        if (adjoint.wants(0))
          adjoint.broadcast(0, full(gemm(d, batch_of(b, batch_dims).transpose(1, 2))));
        if (adjoint.wants(1))
          adjoint.broadcast(1, full(gemm(batch_of(a, batch_dims).transpose(1, 2), d)));
      });
}

}  // namespace

Var linear(const Var& x, const Var& w, const std::optional<Var>& b) {
  check_linear(x, w, b);
  return weighted(linear_op, x, w, b, false);
}

Var matmul(const Var& a, const Var& b) {
  check(a.rank() >= 1 && b.rank() >= 1, "matmul: an operand has no axes: {} x {}", a.shape(),
        b.shape());
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  check(a.shape().back() == b.shape()[b.rank() - 2], "matmul: inner sizes differ: {} x {}",
        a.shape(), b.shape());
  // A shared matrix is treated like a linear layer's weight, so that its gradient stays factored.
  if (b.rank() == 2 && b.samples().is_shared())
    return weighted(matmul_op, a, b, std::nullopt, true);
  if (a.rank() == 2 && a.samples().is_shared()) {
    return transpose(weighted(matmul_op, transpose(b, -1, -2), a, std::nullopt, false), -1, -2);
  }
  return product(a, b);
}

std::optional<std::int64_t> padding_row(const char* op, std::optional<std::int64_t> padding,
                                        std::int64_t rows) {
  if (!padding) return padding;
  const std::int64_t row = *padding < 0 ? *padding + rows : *padding;
  check(row >= 0 && row < rows, "{}: padding {} of a table of {} rows", op, *padding, rows);
  return row;
}

Var embedding(const Var& table, const Var& ids, std::optional<std::int64_t> padding_given) {
  check(table.rank() == 2 && table.samples().is_shared(),
        "embedding: table {} is not a shared matrix", table.shape());
  check(ids.dtype() == Dtype::i64, "embedding: ids are {}, but must be i64", name(ids.dtype()));
  const std::optional<std::int64_t> padding =
      padding_row(embedding_op.name, padding_given, table.shape()[0]);
  check_ids(ids.value(), table.shape()[0]);
  Shape shape = ids.shape();
  shape.push_back(table.shape()[1]);
  const Dtype dtype = dtype_for(embedding_op, {&table, &ids}).value_or(table.dtype());
  const Tensor rows = gather(table.value(), reshape(ids.value(), {-1}), 0);
  const Tensor y = reshape(to_dtype(rows, dtype), shape);
  const Tensor learned =
      by_sample(learned_ids(ids.value(), padding).to(y.device()), ids.samples(), 0);
  return table.tape().record(
      embedding_op, {table, ids}, y, ids.samples(),
      [learned = learned.squeeze(2), samples = ids.samples(), shape = table.shape(),
       gaps = padding.has_value()](const Tensor& dy, Adjoint& adjoint) {
        adjoint.shared(0, PerSampleGrad::onehot(learned, by_sample(dy, samples, 1), shape, gaps));
      });
}

}  // namespace sotto
