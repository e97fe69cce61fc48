#include "autograd/ops/loss/losses.h"

#include <cmath>
#include <optional>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/loss/class_numbers.h"
#include "autograd/ops/padded_columns.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/class_targets.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op cross_entropy_op("cross_entropy", {.precision = Op::Precision::f32});

// Throws unless each target is a class or ignored. Those on a GPU are not read.
void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignored) {
  if (targets.device() != cpu) return;
  for (const std::int64_t t : targets.to_vector<std::int64_t>()) {
    check(t == ignored || (t >= 0 && t < classes), "cross_entropy: target {} of {} classes", t,
          classes);
  }
}

// 1 for each element that counts, 0 for ignored ones; f64, on the targets' device.
Tensor counted(const Tensor& targets, std::int64_t ignore_index) {
  const auto number = [&](double x) { return full({}, x, Dtype::f64, targets.device()); };
  const Tensor ignored = number(static_cast<double>(ignore_index));
  return where(sub(to_dtype(targets, Dtype::f64), ignored), number(1), number(0));
}

SampleAxis without_axis(SampleAxis samples, int axis) {
  return samples.batched() && samples.axis() > axis ? SampleAxis(samples.axis() - 1) : samples;
}

// The permutation of a rank's axes that moves `axis` to the end, and the one back.
struct AxisToEnd {
  AxisToEnd(int axis, int rank) {
    for (int i = 0; i < rank; ++i) {
      if (i != axis) order.push_back(i);
      back.push_back(i < axis ? i : i == axis ? rank - 1 : i - 1);
    }
    order.push_back(axis);
  }
  Shape order, back;
};

// Logits [.., classes] as a matrix, whose rows may have gaps between them (padded_columns.h).
Tensor matrix_of(const Tensor& logits, std::int64_t rows, std::int64_t classes) {
  const std::int64_t pitch = padded_columns(classes, logits.dtype(), logits.device());
  const std::optional<Tensor> matrix = logits.view_as({rows, classes});
  if (matrix && pitch > classes && matrix->strides() == Shape{pitch, 1}) return *matrix;
  return reshape(contiguous(logits), {rows, classes});
}

// An uninitialised matrix of x's size, and zeros in place of the gaps between x's rows.
Tensor rows_like(const Tensor& x) {
  const std::int64_t classes = x.size(1), columns = x.contiguous() ? classes : x.strides()[0];
  const Tensor y = Tensor::empty({x.size(0), columns}, x.dtype(), x.device());
  if (columns > classes) backend(y.device()).fill(0, y.slice(1, classes, columns).view());
  return y;
}

// The operands of the primitive, with the tensors that own their memory.
struct RowTargets {
  Tensor ids, weights;
  double smoothing;
  std::int64_t ignored;
  double z_loss;

  operator ClassTargets() const {
    return {ids.view(), weights.defined() ? weights.view() : View{}, smoothing, ignored, z_loss};
  }
};

}  // namespace

Var cross_entropy_elements(const Var& logits, const Tensor& labels,
                           const CrossEntropyOptions& options) {
  const Tensor targets = as_labels(labels);
  const int axis = normalize_axis("cross_entropy", options.class_axis, logits.rank());
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: label smoothing {}", options.label_smoothing);
  check(options.z_loss >= 0 && std::isfinite(options.z_loss), "cross_entropy: z-loss {}",
        options.z_loss);
  const std::int64_t classes = logits.shape()[axis];
  Shape elements = logits.shape();
  elements.erase(axis);
  check(targets.shape() == elements && targets.dtype() == Dtype::i64,
        "cross_entropy: targets {} {} for logits {}", name(labels.dtype()), labels.shape(),
        logits.shape());
  const Tensor& weights = options.class_weights;
  check(!weights.defined() || weights.shape() == Shape{classes},
        "cross_entropy: {} class weights for {} classes", weights.shape(), classes);
  check_targets(targets, classes, options.ignore_index);

  const SampleAxis samples = preserve_sample_axis(cross_entropy_op, logits, {axis});
  logits.tape().check_plain_rows("cross_entropy", "targets", samples);
  const AxisToEnd move(axis, logits.rank());
  const Tensor moved =
      axis == logits.rank() - 1 ? logits.value() : contiguous(logits.value().permute(move.order));
  const Tensor x = matrix_of(moved, targets.numel(), classes);
  const Dtype wide = arithmetic_type(x.dtype());
  const Device device = x.device();
  const RowTargets q{contiguous(targets).to(device),
                     weights.defined() ? to_dtype(weights, wide).to(device) : Tensor(),
                     options.label_smoothing, options.ignore_index, options.z_loss};
  const Tensor y =
      classes > 0 ? Tensor::empty(elements, wide, device) : zeros(elements, wide, device);
  const Tensor stats = Tensor::empty({x.size(0), 3}, wide, device);
  backend(device).cross_entropy(q, x.view(), reshape(y, {x.size(0)}).view(), stats.view());
  // Without a precision of its own a tape of 16 bits has losses of 16 bits.
  const Tensor losses = to_dtype(y, logits.tape().precision() ? wide : x.dtype());
  return logits.tape().record(
      cross_entropy_op, {logits}, losses, without_axis(samples, axis),
      [q, x, stats, shape = moved.shape(), back = move.back](const Tensor& dy, Adjoint& adjoint) {
        const Tensor dx = rows_like(x),
                     slopes = reshape(to_dtype(contiguous(dy), stats.dtype()), {x.size(0)});
        backend(dx.device())
            .cross_entropy_grad(q, x.view(), stats.view(), slopes.view(),
                                dx.slice(1, 0, x.size(1)).view());
        Shape whole = shape;
        whole[shape.rank() - 1] = dx.size(1);
        adjoint.input(0, reshape(dx, whole).permute(back));
      });
}

Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Var elements = cross_entropy_elements(logits, targets, options);
  const int axis = normalize_axis("cross_entropy", options.class_axis, logits.rank());
  const SampleAxis samples = without_axis(logits.samples(), axis);
  check(samples.batched(), "cross_entropy: logits {} have no sample axis", logits.shape());
  if (elements.rank() == 1) return elements;
  const Tensor count = by_sample(counted(targets, options.ignore_index), samples, 0);
  const Tensor total = sum(count, {1, 2});
  const Tensor divisor = where(total, total, full({}, 1, Dtype::f64, total.device()));
  const Tensor share = unary(unary_index<functors::Reciprocal>, divisor);
  return mul(sum_per_sample(elements),
             untracked(logits.tape(), to_dtype(share, elements.dtype()), 0));
}

Var mse_loss(const Var& x, const Var& target) {
  check(x.shape() == target.shape(), "mse_loss: {} and target {}", x.shape(), target.shape());
  return mean_per_sample(square(sub(to_f32(x), target)));
}

}  // namespace sotto
