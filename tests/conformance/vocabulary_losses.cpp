#include "sotto/kernels/compute.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

// `divisor` is what the mean divides by, the number of elements when it is not given.
Var reduced(const Call& call, const Var& elements, std::optional<double> divisor = std::nullopt) {
  const auto reduction = call.arg<std::string>("reduction");
  if (reduction == "none") return elements;
  if (reduction == "sum") return sum(elements);
  if (reduction == "mean") {
    return divisor ? affine(sum(elements), 1 / *divisor, 0) : mean(elements);
  }
  throw Malformed("reduction is " + reduction);
}

Var distance(const Call& call) { return abs(sub(call["x"], call["target"])); }

// d^2 / 2 up to `limit`, its tangent beyond.
Var huber(const Var& d, double limit) {
  const Var inner = clamp(d, 0, limit);
  return mul(inner, sub(d, affine(inner, 0.5, 0)));
}

Var smooth_l1(const Call& call) {
  const auto beta = call.arg<double>("beta");
  const Var d = distance(call);
  return reduced(call, beta == 0 ? d : affine(huber(d, beta), 1 / beta, 0));
}

Var bce_with_logits(const Call& call) {
  const Var& x = call["x"];
  const Var& t = call["target"];
  Var yes = mul(t, logsigmoid(x));
  if (const auto weight = call.maybe("pos_weight")) yes = mul(yes, *weight);
  const Var no = mul(affine(t, -1, 1), logsigmoid(affine(x, -1, 0)));
  Var y = affine(add(yes, no), -1, 0);
  if (const auto weight = call.maybe("weight")) y = mul(y, *weight);
  return reduced(call, y);
}

Var kl_elements(const Call& call) {
  const Var& x = call["x"];
  const Var& t = call["target"];
  if (call.arg<bool>("log_target")) return mul(exp(t), sub(t, x));
  // The logarithm of 1 where t = 0.
  const Var one = call.tape.constant(full({}, 1, t.dtype()));
  return sub(mul(t, log(where(t, t, one))), mul(t, x));
}

Var kl_div(const Call& call) {
  const Var elements = kl_elements(call);
  if (call.arg<std::string>("reduction") != "batchmean") return reduced(call, elements);
  return affine(sum(elements), 1.0 / static_cast<double>(elements.shape()[0]), 0);
}

// Class weights are numbers here, as they are in the library.
Tensor class_weights(const Call& call) {
  const auto weight = call.maybe("weight");
  if (!weight) return Tensor();
  if (weight->needs_grad()) throw Skip("the library has no gradient of class weights");
  return weight->value();
}

// The sum of w[t] over targets that are not ignored.
double counted_weight(const Call& call) {
  const auto ignored = call.arg<std::int64_t>("ignore_index");
  const Tensor weights = class_weights(call);
  std::vector<double> list;
  if (weights.defined()) list = to_dtype(weights, Dtype::f64).to_vector<double>();
  double total = 0;
  for (const std::int64_t t : call["target"].value().to_vector<std::int64_t>()) {
    if (t != ignored) total += list.empty() ? 1 : list.at(static_cast<std::size_t>(t));
  }
  return total;
}

// Weights of the classes along axis 1 of an operand of this rank.
Var along_classes(const Call& call, const Tensor& weights, int rank) {
  Shape shape{weights.size(0)};
  while (shape.rank() < rank - 1) shape.push_back(1);
  return call.tape.constant(reshape(weights, shape));
}

// [N, C, ...]: w[c] where c is the target, else 0.
Tensor picked_classes(const Call& call, const Shape& shape) {
  const auto ignored = call.arg<std::int64_t>("ignore_index");
  const auto targets = call["target"].value().to_vector<std::int64_t>();
  const std::int64_t classes = shape[1];
  const std::int64_t inner = shape.numel() / std::max<std::int64_t>(shape[0] * classes, 1);
  std::vector<double> picks(static_cast<std::size_t>(shape.numel()), 0.0);
  for (std::size_t e = 0; e < targets.size(); ++e) {
    if (targets[e] == ignored) continue;
    if (targets[e] < 0 || targets[e] >= classes) throw Malformed("a target is no class");
    const auto n = static_cast<std::int64_t>(e) / inner;
    const auto k = static_cast<std::int64_t>(e) % inner;
    picks[static_cast<std::size_t>((n * classes + targets[e]) * inner + k)] = 1;
  }
  return Tensor::from(picks, shape);
}

Var constant_like(const Call& call, const Var& x, const Tensor& value) {
  const Tensor same = to_dtype(value, x.dtype());
  return x.samples().batched() ? call.tape.input(same, x.samples().axis())
                               : call.tape.constant(same);
}

Var nll_loss(const Call& call) {
  const Var& x = call["x"];
  Var picked = mul(x, constant_like(call, x, picked_classes(call, x.shape())));
  const Tensor weights = class_weights(call);
  if (weights.defined()) picked = mul(picked, along_classes(call, weights, x.rank()));
  return reduced(call, affine(sum(picked, {1}), -1, 0), counted_weight(call));
}

Var soft_cross_entropy(const Call& call) {
  const Var& x = call["x"];
  const auto s = call.arg<double>("label_smoothing");
  const Var p = affine(call["target"], 1 - s, s / static_cast<double>(x.shape()[1]));
  Var y = mul(p, log_softmax(x, 1));
  const Tensor weights = class_weights(call);
  if (weights.defined()) y = mul(y, along_classes(call, weights, x.rank()));
  return reduced(call, affine(sum(y, {1}), -1, 0));
}

Var any_cross_entropy(const Call& call) {
  if (call["target"].dtype() != Dtype::i64) return soft_cross_entropy(call);
  const CrossEntropyOptions options{.class_axis = 1,
                                    .label_smoothing = call.arg<double>("label_smoothing"),
                                    .ignore_index = call.arg<std::int64_t>("ignore_index"),
                                    .class_weights = class_weights(call)};
  const Var elements = cross_entropy_elements(call["x"], call["target"].value(), options);
  return reduced(call, elements, counted_weight(call));
}

}  // namespace

void add_losses(Vocabulary& vocabulary) {
  vocabulary["mse_loss"] = single(
      [](const Call& call) { return reduced(call, square(sub(call["x"], call["target"]))); });
  vocabulary["l1_loss"] = single([](const Call& call) { return reduced(call, distance(call)); });
  vocabulary["smooth_l1_loss"] = single(smooth_l1);
  vocabulary["huber_loss"] = single([](const Call& call) {
    return reduced(call, huber(distance(call), call.arg<double>("delta")));
  });
  vocabulary["bce_with_logits"] = single(bce_with_logits);
  vocabulary["kl_div"] = single(kl_div);
  vocabulary["nll_loss"] = single(nll_loss);
  vocabulary["cross_entropy"] = single(any_cross_entropy);
}

}  // namespace sotto::conformance
