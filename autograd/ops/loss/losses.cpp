#include "autograd/ops/loss/losses.h"

#include "autograd/ops/elementwise.h"
#include "autograd/ops/loss/class_numbers.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op cross_entropy_op("cross_entropy");

// For each element, its (negative) weights of the classes' log-probabilities: [elements, C], zeros
// for ignored elements.
std::vector<double> class_weights_of(const std::vector<std::int64_t>& targets, std::int64_t classes,
                                     const CrossEntropyOptions& options) {
  std::vector<double> weights(static_cast<std::size_t>(classes), 1.0);
  if (options.class_weights.defined()) {
    weights = to_dtype(options.class_weights, Dtype::f64).to_vector<double>();
  }
  const double s = options.label_smoothing;
  std::vector<double> shares(targets.size() * weights.size(), 0.0);
  for (std::size_t e = 0; e < targets.size(); ++e) {
    const std::int64_t t = targets[e];
    if (t == options.ignore_index) continue;
    check(t >= 0 && t < classes, "cross_entropy: target {} of {} classes", t, classes);
    double* row = shares.data() + e * weights.size();
    for (std::size_t c = 0; c < weights.size(); ++c)
      row[c] = -s / static_cast<double>(classes) * weights[c];
    row[t] -= (1 - s) * weights[static_cast<std::size_t>(t)];
  }
  return shares;
}

// 1 for each element that counts, 0 for ignored ones; f64, on the targets' device.
Tensor counted(const Tensor& targets, std::int64_t ignore_index) {
  const auto number = [&](double x) { return full({}, x, Dtype::f64, targets.device()); };
  const Tensor ignored = number(static_cast<double>(ignore_index));
  return where(sub(to_dtype(targets, Dtype::f64), ignored), number(1), number(0));
}

// Like class_weights_of(), [.., C], on the targets' GPU, without waiting for it. An invalid target
// makes its element NaN instead of throwing.
Tensor class_weights_on_gpu(const Tensor& targets, const Shape& shape, Dtype dtype,
                            const CrossEntropyOptions& options) {
  const Device device = targets.device();
  const Tensor zero = zeros({}, dtype, device), ids = targets.unsqueeze(-1);
  const Tensor weights = options.class_weights.defined()
                             ? to_dtype(options.class_weights, dtype).to(device)
                             : full({shape.back()}, 1, dtype, device);
  const Tensor counts = counted(targets, options.ignore_index).unsqueeze(-1);
  const int axis = shape.rank() - 1;
  const Tensor own = where(counts, take_along(weights.expand(shape), ids, axis), zero);
  const double s = options.label_smoothing;
  Tensor q = contiguous(scale(weights, -s / static_cast<double>(shape.back())).expand(shape));
  if (s != 0) q = where(counts, q, zero);
  backend(device).put_along_add(scale(own, s - 1).view(), ids.view(), axis, q.view());
  axpby(1, sub(own, own), 1, q.slice(-1, 0, 1));  // adds 0, or NaN for an invalid target
  return q;
}

SampleAxis without_axis(SampleAxis samples, int axis) {
  return samples.batched() && samples.axis() > axis ? SampleAxis(samples.axis() - 1) : samples;
}

// sum_c q[.., c] log_softmax(x)[.., c], with the classes along `axis` of x. Weights select: a class
// of weight 0 may have a logit of minus infinity, and an ignored element any value.
Var weighted_logarithms(const Var& x, int axis, const Tensor& q) {
  const SampleAxis samples = preserve_sample_axis(cross_entropy_op, x, {axis});
  // Moves the class axis to the end, and back.
  Shape order, back;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) order.push_back(i);
    back.push_back(i < axis ? i : i == axis ? x.rank() - 1 : i - 1);
  }
  order.push_back(axis);
  const Tensor rows = contiguous(x.value().permute(order));
  const Tensor logarithms = empty_like(rows);
  backend(rows.device()).softmax(rows.view(), true, logarithms.view());
  const Tensor zero = zeros({}, q.dtype(), q.device());
  const Tensor terms = where(q, logarithms, zero);
  const Tensor y = sum(mul(terms, q), {-1});
  return x.tape().record(
      cross_entropy_op, {x}, y, without_axis(samples, axis),
      [q, logarithms, back](const Tensor& dy, Adjoint& adjoint) {
        const Tensor d = mul(dy.unsqueeze(-1), q), dx = empty_like(logarithms);
        backend(dx.device()).softmax_grad(logarithms.view(), d.view(), true, dx.view());
        adjoint.input(0, dx.permute(back));
      });
}

}  // namespace

Var cross_entropy_elements(const Var& scores, const Tensor& labels,
                           const CrossEntropyOptions& options) {
  const Tensor targets = as_labels(labels);
  const Var logits = to_f32(scores);
  const int axis = normalize_axis("cross_entropy", options.class_axis, logits.rank());
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: label smoothing {}", options.label_smoothing);
  const std::int64_t classes = logits.shape()[axis];
  Shape expected = logits.shape();
  expected.erase(axis);
  check(targets.shape() == expected && targets.dtype() == Dtype::i64,
        "cross_entropy: targets {} {} for logits {}", name(labels.dtype()), labels.shape(),
        logits.shape());
  check(!options.class_weights.defined() || options.class_weights.shape() == Shape{classes},
        "cross_entropy: {} class weights for {} classes", options.class_weights.shape(), classes);
  // The negative weights of the log-probabilities have the class axis last.
  expected.push_back(classes);
  const Device device = logits.value().device();
  if (targets.device() != cpu)
    return weighted_logarithms(
        logits, axis, class_weights_on_gpu(targets, expected, logits.dtype(), options).to(device));
  const std::vector<double> shares =
      class_weights_of(targets.to_vector<std::int64_t>(), classes, options);
  const Tensor q = to_dtype(Tensor::from(shares, expected), logits.dtype()).to(device);
  return weighted_logarithms(logits, axis, q);
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
