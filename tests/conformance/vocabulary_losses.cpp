#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

// `divisor` is the mean's divisor; by default the number of elements.
Var reduced(const Call& call, const Var& elements, std::optional<double> divisor = std::nullopt) {
  const auto reduction = call.arg<std::string>("reduction");
  if (reduction == "none") return elements;
  if (reduction == "sum") return sum(elements);
  if (reduction == "mean") {
    return divisor ? affine(sum(elements), 1 / *divisor, 0) : mean(elements);
  }
  throw Malformed("reduction is " + reduction);
}

Var smooth_l1(const Call& call) {
  return reduced(call,
                 smooth_l1_loss(call["x"], call["target"], call.arg<double>("beta"), Within::none));
}

Var bce_with_logits(const Call& call) {
  const LogitsOptions options{call.maybe("weight"), call.maybe("pos_weight")};
  return reduced(
      call, binary_cross_entropy_with_logits(call["x"], call["target"], options, Within::none));
}

Var divergence(const Call& call) {
  const Var elements =
      kl_div(call["x"], call["target"], call.arg<bool>("log_target"), Within::none);
  if (call.arg<std::string>("reduction") != "batchmean") return reduced(call, elements);
  return affine(sum(elements), 1.0 / static_cast<double>(elements.shape()[0]), 0);
}

// Class weights must be constants, as in the library.
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

Var nll(const Call& call) {
  const NllOptions options{call.arg<std::int64_t>("ignore_index"), class_weights(call)};
  const Var elements = nll_loss(call["x"], call["target"].value(), options, Within::none);
  return reduced(call, elements, counted_weight(call));
}

Var with_probabilities(const Call& call) {
  const SoftTargetOptions options{.label_smoothing = call.arg<double>("label_smoothing"),
                                  .class_weights = class_weights(call)};
  return reduced(call, soft_cross_entropy(call["x"], call["target"], options, Within::none));
}

Var any_cross_entropy(const Call& call) {
  if (call["target"].dtype() != Dtype::i64) return with_probabilities(call);
  const CrossEntropyOptions options{.class_axis = 1,
                                    .label_smoothing = call.arg<double>("label_smoothing"),
                                    .ignore_index = call.arg<std::int64_t>("ignore_index"),
                                    .class_weights = class_weights(call)};
  const Var elements = cross_entropy_elements(call["x"], call["target"].value(), options);
  return reduced(call, elements, counted_weight(call));
}

}  // namespace

void add_losses(Vocabulary& vocabulary) {
  vocabulary["mse_loss"] = single([](const Call& call) {
    return reduced(call, squared_error(call["x"], call["target"], Within::none));
  });
  vocabulary["l1_loss"] = single([](const Call& call) {
    return reduced(call, absolute_error(call["x"], call["target"], Within::none));
  });
  vocabulary["smooth_l1_loss"] = single(smooth_l1);
  vocabulary["huber_loss"] = single([](const Call& call) {
    return reduced(call,
                   huber_loss(call["x"], call["target"], call.arg<double>("delta"), Within::none));
  });
  vocabulary["bce_with_logits"] = single(bce_with_logits);
  vocabulary["kl_div"] = single(divergence);
  vocabulary["nll_loss"] = single(nll);
  vocabulary["cross_entropy"] = single(any_cross_entropy);
}

}  // namespace sotto::conformance
