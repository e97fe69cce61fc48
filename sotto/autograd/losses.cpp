#include "sotto/autograd/losses.h"

#include "sotto/autograd/elementwise.h"
#include "sotto/autograd/precision.h"
#include "sotto/autograd/reductions.h"
#include "sotto/autograd/samples.h"
#include "sotto/autograd/shape_ops.h"
#include "sotto/kernels/compute.h"

namespace sotto {

namespace {

// For each element the weights of -log p over the classes: [elements, C], zeros where ignored.
std::vector<double> class_shares(const std::vector<std::int64_t>& targets, std::int64_t classes,
                                 const CrossEntropyOptions& options) {
  std::vector<double> weights(static_cast<std::size_t>(classes), 1.0);
  if (options.class_weights.defined()) {
    check(options.class_weights.shape() == Shape{classes},
          "cross_entropy: {} class weights for {} classes", options.class_weights.shape(), classes);
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
      row[c] = s / static_cast<double>(classes) * weights[c];
    row[t] += (1 - s) * weights[static_cast<std::size_t>(t)];
  }
  return shares;
}

SampleAxis without_axis(SampleAxis samples, int axis) {
  return samples.batched() && samples.axis() > axis ? SampleAxis(samples.axis() - 1) : samples;
}

// 1 for each element that counts, 0 where ignored.
Tensor counted(const Tensor& targets, std::int64_t ignore_index) {
  std::vector<double> counts;
  for (const std::int64_t target : targets.to_vector<std::int64_t>())
    counts.push_back(target == ignore_index ? 0 : 1);
  return Tensor::from(counts, targets.shape());
}

}  // namespace

Var cross_entropy_elements(const Var& scores, const Tensor& targets,
                           const CrossEntropyOptions& options) {
  const Var logits = widened(scores);
  const int axis = normalize_axis("cross_entropy", options.class_axis, logits.rank());
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: label smoothing {}", options.label_smoothing);
  const std::int64_t classes = logits.shape()[axis];
  Shape expected = logits.shape();
  expected.erase(axis);
  check(targets.shape() == expected && targets.dtype() == Dtype::i64,
        "cross_entropy: targets {} {} for logits {}", name(targets.dtype()), targets.shape(),
        logits.shape());
  const std::vector<double> shares =
      class_shares(targets.to_vector<std::int64_t>(), classes, options);
  Shape last = expected;
  last.push_back(classes);
  Shape order;
  for (int i = 0; i < expected.rank(); ++i) order.push_back(i);
  order.insert(axis, expected.rank());
  const Tensor q = to_dtype(Tensor::from(shares, last), logits.dtype()).permute(order);
  const Var weights = known(logits.tape(), q, logits.samples());
  const Var zero = logits.tape().constant(zeros({}, logits.dtype(), logits.value().device()));
  // Weights select: a class without one may have a logit of minus infinity, an ignored element
  // anything.
  const Var chosen = where(weights, log_softmax(logits, axis), zero);
  return affine(sum(mul(chosen, weights), {axis}), -1, 0);
}

Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Var elements = cross_entropy_elements(logits, targets, options);
  const int axis = normalize_axis("cross_entropy", options.class_axis, logits.rank());
  const SampleAxis samples = without_axis(logits.samples(), axis);
  check(samples.batched(), "cross_entropy: logits {} have no sample axis", logits.shape());
  if (elements.rank() == 1) return elements;
  const Tensor count = by_sample(counted(targets, options.ignore_index), samples, 0);
  const Tensor total = sum(count, {1, 2});
  const Tensor divisor = where(total, total, full({}, 1, Dtype::f64));
  const Tensor share = unary(unary_index<Reciprocal>, divisor);
  return mul(sum_per_sample(elements), known(logits.tape(), to_dtype(share, elements.dtype()), 0));
}

Var mse_loss(const Var& x, const Var& target) {
  check(x.shape() == target.shape(), "mse_loss: {} and target {}", x.shape(), target.shape());
  return mean_per_sample(square(sub(widened(x), target)));
}

}  // namespace sotto
