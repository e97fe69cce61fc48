#include "autograd/adjoint.h"

#include <string_view>

#include "autograd/backward_pass.h"
#include "autograd/ops/padded_columns.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Sums the gradients of all views of each sample: row r belongs to sample r mod n.
PerSampleGrad by_samples(const PerSampleGrad& gradient, std::int64_t samples) {
  const std::int64_t rows = gradient.samples();
  if (samples <= 0 || rows <= samples) return gradient;
  Grouping views{.unit_of_row = {}, .units = samples};
  for (std::int64_t row = 0; row < rows; ++row) views.unit_of_row.push_back(row % samples);
  return gradient.group(views);
}

// A gradient for a value of `shape` without the columns of zeros behind those of the value
// (padded_columns.h).
Tensor first_columns(const Tensor& dx, const Shape& shape) {
  if (dx.rank() != shape.rank() || dx.rank() == 0) return dx;
  const std::int64_t own = shape.back(), all = padded_columns(own, dx.dtype(), dx.device());
  return dx.size(-1) == all && all > own ? dx.slice(-1, 0, own) : dx;
}

// The sum over all samples of an elementwise op's gradient, as that of one sample.
PerSampleGrad sum_of_samples(const Tensor& full, const Shape& shape) {
  const Tensor total = sum_to_f32(full, shape);
  return PerSampleGrad::materialized(total.unsqueeze(0));
}

const Var& input_of(const detail::TapeNode& node, int i) {
  return node.inputs[static_cast<std::size_t>(i)];
}

}  // namespace

bool Adjoint::wants(int i) const { return input_of(pass_.node(node_), i).needs_grad(); }

bool Adjoint::sums_only() const { return pass_.sums_only(); }

Shape Adjoint::with_batch_dims(const Shape& shape) const {
  Shape y = shape;
  if (rows_ >= 0) y.insert(0, rows_);
  return y;
}

Tensor Adjoint::in_place(const Tensor& dy) const {
  // The only reference left is that of the pass, which releases dy after this backward.
  return dy.sole() && dy.is_dense() ? dy : empty_like(dy);
}

void Adjoint::input(int i, const Tensor& dx) {
  if (!wants(i)) return;
  const Var& x = input_of(pass_.node(node_), i);
  const Tensor own = first_columns(dx, x.shape());
  const detail::TapeNode& node = pass_.node(node_);
  check(own.shape() == with_batch_dims(x.shape()), "{}: gradient {} for input {} of shape {}",
        node.name, dx.shape(), i, x.shape());
  if (x.samples().is_shared() && !node.samples.is_shared()) {
    check(node.samples.is_mixed(),
          "{}: gradient {} for input {}, which all samples share, has no samples; deliver it by "
          "shared()",
          node.name, dx.shape(), i);
    return shared(i, sum_of_samples(own, x.shape()));
  }
  Tensor& total = pass_.cotangent(x).value;
  const bool alike = !total.defined() || total.shape() == dx.shape();
  if (alike && detail::takes_padding(pass_.node(x.index_)))
    return detail::add_to(total, to_dtype(dx, x.dtype()));
  if (total.defined()) total = first_columns(total, x.shape());
  detail::add_to(total, to_dtype(own, x.dtype()));
}

void Adjoint::shared(int i, const PerSampleGrad& gradient) {
  if (!wants(i)) return;
  const detail::TapeNode& node = pass_.node(node_);
  const Var& x = input_of(node, i);
  check(gradient.shape() == x.shape(), "{}: gradient {} for shared input {} of shape {}", node.name,
        gradient.shape(), i, x.shape());
  if (node.samples.is_shared()) return input(i, gradient.sum());
  auto& target = pass_.cotangent(x);
  // Sums at once, so that factors are not kept until the last use of the value.
  if (pass_.sums_only()) return detail::add_to(target.sum, gradient.sum());
  // One of a segment has the views of each sample added up already.
  const std::int64_t rows =
      node.samples.is_mixed() ? gradient.samples() : node.shape[node.samples.axis()];
  check(gradient.samples() == rows || gradient.samples() == pass_.sample_count(),
        "{}: gradients of {} samples for shared input {}, where the result has {} along its sample "
        "axis",
        node.name, gradient.samples(), i, rows);
  target.add_use(by_samples(gradient, pass_.sample_count()));
}

void Adjoint::broadcast(int i, const Tensor& full) {
  if (!wants(i)) return;
  const Var& x = input_of(pass_.node(node_), i);
  const SampleAxis samples = pass_.node(node_).samples;
  if (rows_ >= 0) {
    Shape kept = x.shape();
    while (kept.rank() + 1 < full.rank()) kept.insert(0, 1);
    kept.insert(0, rows_);
    return input(i, reshape(sum_to(full, kept), with_batch_dims(x.shape())));
  }
  if (!x.samples().is_shared() || samples.is_shared()) return input(i, sum_to(full, x.shape()));
  if (samples.is_mixed() || sums_only()) return shared(i, sum_of_samples(full, x.shape()));
  // Sums over all axes except the sample axis, which moves to the front.
  Shape kept = x.shape();
  while (kept.rank() < full.rank()) kept.insert(0, 1);
  const int axis = samples.axis();
  kept[axis] = full.size(axis);
  const Tensor gradients = sum_to_f32(full, kept);
  Shape order{axis};
  for (int k = 0; k < full.rank(); ++k) {
    if (k != axis) order.push_back(k);
  }
  Shape shape = x.shape();
  shape.insert(0, full.size(axis));
  shared(i, PerSampleGrad::materialized(reshape(gradients.permute(order), shape)));
}

}  // namespace sotto
