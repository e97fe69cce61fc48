#include "autograd/ops/loss/element_losses.h"

#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "autograd/ops/loss/class_numbers.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

void check_pair(const char* loss, const Var& x, const Var& target) {
  check(x.shape() == target.shape(), "{}: {} and target {}", loss, x.shape(), target.shape());
}

Var number(const Var& like, double value) {
  return like.tape().constant(full({}, value, like.dtype(), like.value().device()));
}

// d^2 / 2 up to `limit`, continued by its tangent.
Var huber(const Var& d, double limit) {
  const Var inner = clamp(d, 0, limit);
  return inner * (d - affine(inner, 0.5, 0));
}

// A value without gradient that has the sample axis of `like`, after axis `gone` was dropped.
Var beside(const Var& like, const Tensor& value, int gone) {
  const Tensor same = is_float(value.dtype()) ? to_dtype(value, like.dtype()) : value;
  const SampleAxis samples = like.samples();
  const bool moved = samples.batched() && gone >= 0 && gone < samples.axis();
  return untracked(like.tape(), same, moved ? SampleAxis(samples.axis() - 1) : samples);
}

// Class weights along `axis` of a value of like's rank.
Var along(const Var& like, const Tensor& weights, int axis) {
  check(weights.shape() == Shape{like.shape()[axis]}, "class weights {} for {} classes",
        weights.shape(), like.shape()[axis]);
  Shape shape = Shape::filled(like.rank() - axis, 1);
  shape[0] = weights.size(0);
  return like.tape().constant(reshape(to_dtype(weights, like.dtype()), shape));
}

// max(log x, -100).
Var bounded_log(const Var& x) {
  constexpr double min = -100;
  const Var positive = where(x, x, number(x, 1));
  return maximum(where(x, log(positive), number(x, min)), number(x, min));
}

}  // namespace

Var reduce_within(const Var& elements, Within within) {
  if (within == Within::none) return elements;
  return within == Within::mean ? mean_per_sample(elements) : sum_per_sample(elements);
}

Var squared_error(const Var& x, const Var& target, Within within) {
  check_pair("squared_error", x, target);
  return reduce_within(square(x - target), within);
}

Var absolute_error(const Var& x, const Var& target, Within within) {
  check_pair("absolute_error", x, target);
  return reduce_within(abs(x - target), within);
}

Var smooth_l1_loss(const Var& x, const Var& target, double beta, Within within) {
  check_pair("smooth_l1_loss", x, target);
  check(beta >= 0, "smooth_l1_loss: beta {}", beta);
  const Var d = abs(x - target);
  return reduce_within(beta == 0 ? d : affine(huber(d, beta), 1 / beta, 0), within);
}

Var huber_loss(const Var& x, const Var& target, double delta, Within within) {
  check_pair("huber_loss", x, target);
  check(delta > 0, "huber_loss: delta {}", delta);
  return reduce_within(huber(abs(x - target), delta), within);
}

Var binary_cross_entropy(const Var& probabilities, const Var& target, Within within) {
  check_pair("binary_cross_entropy", probabilities, target);
  const Var x = to_f32(probabilities);
  const Var no = affine(x, -1, 1);
  return reduce_within(
      affine(target * bounded_log(x) + affine(target, -1, 1) * bounded_log(no), -1, 0), within);
}

Var binary_cross_entropy_with_logits(const Var& x, const Var& target, const LogitsOptions& options,
                                     Within within) {
  check_pair("binary_cross_entropy_with_logits", x, target);
  Var yes = target * logsigmoid(x);
  if (options.pos_weight) yes = yes * *options.pos_weight;
  const Var no = affine(target, -1, 1) * logsigmoid(affine(x, -1, 0));
  Var y = affine(yes + no, -1, 0);
  if (options.weight) y = y * *options.weight;
  return reduce_within(y, within);
}

Var kl_div(const Var& x, const Var& target, bool log_target, Within within) {
  check_pair("kl_div", x, target);
  if (log_target) return reduce_within(exp(target) * (target - x), within);
  // The logarithm of 1 replaces that of t = 0.
  return reduce_within(target * log(where(target, target, number(target, 1))) - target * x, within);
}

Var poisson_nll_loss(const Var& x, const Var& target, bool log_input, double eps, Within within) {
  check_pair("poisson_nll_loss", x, target);
  return reduce_within(log_input ? exp(x) - target * x : x - target * log(affine(x, 1, eps)),
                       within);
}

Var hinge_loss(const Var& x, const Var& target, double margin, Within within) {
  check_pair("hinge_loss", x, target);
  return reduce_within(relu(affine(x * target, -1, margin)), within);
}

Var soft_cross_entropy(const Var& scores, const Var& probabilities,
                       const SoftTargetOptions& options, Within within) {
  check_pair("soft_cross_entropy", scores, probabilities);
  const Var logits = to_f32(scores);
  const int axis = normalize_axis("soft_cross_entropy", options.class_axis, logits.rank());
  const double s = options.label_smoothing;
  check(s >= 0 && s <= 1, "soft_cross_entropy: label smoothing {}", s);
  Var y = affine(probabilities, 1 - s, s / static_cast<double>(logits.shape()[axis])) *
          log_softmax(logits, axis);
  if (options.class_weights.defined()) y = y * along(logits, options.class_weights, axis);
  return reduce_within(affine(sum(y, {axis}), -1, 0), within);
}

Var nll_loss(const Var& log_probabilities, const Tensor& labels, const NllOptions& options,
             Within within) {
  const Tensor targets = as_labels(labels);
  const Var x = to_f32(log_probabilities);
  x.tape().check_plain_rows("nll_loss", "targets", x.samples());
  Shape expected = x.shape();
  check(x.rank() >= 2, "nll_loss: log-probabilities {} have no classes along axis 1", x.shape());
  const std::int64_t classes = expected[1];
  expected.erase(1);
  check(targets.dtype() == Dtype::i64 && targets.shape() == expected,
        "nll_loss: targets {} {} for log-probabilities {}", name(labels.dtype()), labels.shape(),
        x.shape());
  std::vector<double> class_weights(static_cast<std::size_t>(classes), 1.0);
  if (options.class_weights.defined()) {
    check(options.class_weights.shape() == Shape{classes},
          "nll_loss: {} class weights for {} classes", options.class_weights.shape(), classes);
    class_weights = to_dtype(options.class_weights, Dtype::f64).to_vector<double>();
  }
  std::vector<std::int64_t> ids = targets.to_vector<std::int64_t>();
  std::vector<double> weights;
  for (std::int64_t& id : ids) {
    const bool ignored = options.ignore_index && id == *options.ignore_index;
    check(ignored || (id >= 0 && id < classes), "nll_loss: target {} of {} classes", id, classes);
    id = ignored ? 0 : id;
    weights.push_back(ignored ? 0 : class_weights[static_cast<std::size_t>(id)]);
  }
  Shape with_batch_dims = expected;
  with_batch_dims.insert(1, 1);
  const Var weight = beside(x, Tensor::from(weights, expected), 1);
  const Var picked = squeeze(gather(x, 1, beside(x, Tensor::from(ids, with_batch_dims), -1)), 1);
  // Weights select: the log-probability of an ignored target may have any value.
  const Var y = affine(where(weight, picked, number(x, 0)) * weight, -1, 0);
  if (within != Within::mean) return reduce_within(y, within);
  const Var total = sum_per_sample(weight);
  return sum_per_sample(y) / where(total, total, number(x, 1));
}

Var cosine_similarity(const Var& left, const Var& right, int axis, double eps) {
  check_pair("cosine_similarity", left, right);
  const Var a = to_f32(left), b = to_f32(right);
  const Var lengths = norm(a, {axis}) * norm(b, {axis});
  return sum(a * b, {axis}) / maximum(lengths, number(a, eps));
}

Var cosine_embedding_loss(const Var& a, const Var& b, const Var& target, double margin) {
  const Var cosine = cosine_similarity(a, b);
  check_pair("cosine_embedding_loss", cosine, target);
  return where(relu(target), affine(cosine, -1, 1), relu(affine(cosine, 1, -margin)));
}

Var triplet_margin_loss(const Var& anchor, const Var& positive, const Var& negative, double margin,
                        double p, double eps) {
  check_pair("triplet_margin_loss", anchor, positive);
  check_pair("triplet_margin_loss", anchor, negative);
  check(p >= 1, "triplet_margin_loss: p {}", p);
  const auto distance = [&](const Var& other) {
    return p_norm(affine(to_f32(anchor) - to_f32(other), 1, eps), p, {-1});
  };
  return relu(affine(distance(positive) - distance(negative), 1, margin));
}

}  // namespace sotto
