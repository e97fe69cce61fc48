#include "autograd/ops/quantized_products.h"

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "core/devices.h"
#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op quantized_linear_op("quantized_linear", {.captures = Op::Captures::shared,
                                                  .precision = Op::Precision::lower,
                                                  .batchable = true});

}  // namespace

Var quantized_linear(const Var& input, const BlockMatrix& w, const std::optional<Var>& b) {
  check_blocks(quantized_linear_op.name, w);
  check(input.rank() >= 1 && input.shape().back() == w.columns() && is_float(input.dtype()),
        "quantized_linear: input {} {} does not fit blocks of shape {}", name(input.dtype()),
        input.shape(), w.shape);
  check(!b || (b->shape() == Shape{w.rows()} && b->samples().is_shared()),
        "quantized_linear: bias {} does not fit blocks of shape {}, or is not shared by all "
        "samples",
        b ? b->shape() : Shape{}, w.shape);
  Var x = input;
  cast_inputs(quantized_linear_op, {&x});
  const SampleAxis samples = preserve_sample_axis(quantized_linear_op, x, {-1});
  const Var y = x.tape().record(quantized_linear_op, {x}, multiply_blocks(x.value(), w), samples,
                                [w](const Tensor& dy, Adjoint& adjoint) {
                                  adjoint.input(0, multiply_blocks_transposed(dy, w));
                                });
  return b ? add(y, *b) : y;
}

Var quantized_embedding(const BlockMatrix& table, const Var& ids) {
  check(ids.dtype() == Dtype::i64, "quantized_embedding: ids are {}, but must be i64",
        name(ids.dtype()));
  check(ids.value().device() == cpu,
        "quantized_embedding: ids are on {}; blocks are looked up on the CPU alone, so widen the "
        "table",
        name(ids.value().device()));
  const Tensor rows = dequantize_rows(table, ids.value());
  Shape shape = ids.shape();
  shape.push_back(table.columns());
  // cast() makes it f64 on a tape of that precision.
  return cast(untracked(ids.tape(), reshape(rows, shape), ids.samples()), Dtype::f32);
}

}  // namespace sotto
