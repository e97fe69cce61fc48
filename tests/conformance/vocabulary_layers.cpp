#include "sotto/nn/embedding_bag.h"
#include "sotto/nn/functional.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

nn::ScaleShift scale_shift(const Call& call) { return {call.maybe("weight"), call.maybe("bias")}; }

Var embedded(const Call& call) {
  const Json padding = call.arg<Json>("padding_idx");
  return embedding(
      call["weight"], call["x"],
      padding.is_null() ? std::nullopt : std::optional(call.arg<std::int64_t>("padding_idx")));
}

Var embedding_bag(const Call& call) {
  const auto mode = call.arg<std::string>("mode");
  nn::BagOptions options{mode == "sum"    ? nn::BagMode::sum
                         : mode == "mean" ? nn::BagMode::mean
                                          : nn::BagMode::max};
  if (!call.arg<Json>("padding_idx").is_null()) {
    options.padding = call.arg<std::int64_t>("padding_idx");
  }
  const auto weights = call.maybe("per_sample_weights");
  if (const auto offsets = call.maybe("offsets")) {
    return nn::embedding_bag(call["weight"], call["x"].value(), offsets->value(), weights, options);
  }
  return nn::embedding_bag(call["weight"], call["x"], weights, options);
}

Var layer_norm(const Call& call) {
  return nn::layer_norm(call["x"], call.shape("normalized_shape"), scale_shift(call),
                        call.arg<double>("eps"));
}

Var rms_norm(const Call& call) {
  return nn::rms_norm(call["x"], call.shape("normalized_shape"), scale_shift(call),
                      call.arg<double>("eps"));
}

Var group_norm(const Call& call) {
  return nn::group_norm(call["x"], call.arg<std::int64_t>("num_groups"), scale_shift(call),
                        call.arg<double>("eps"));
}

Var instance_norm(const Call& call) {
  return nn::instance_norm(call["x"], scale_shift(call), call.arg<double>("eps"));
}

// max(x, 0) - weight max(-x, 0)
Var prelu(const Call& call) {
  const Var& x = call["x"];
  Var weight = call["weight"];
  if (weight.value().numel() > 1) {
    Shape channels{weight.value().numel()};
    while (channels.rank() < x.rank() - 1) channels.push_back(1);
    weight = reshape(weight, channels);
  }
  return sub(relu(x), mul(weight, relu(affine(x, -1, 0))));
}

// The products x1[i] x2[j] meet a weight with i and j joined.
Var bilinear(const Call& call) {
  const Var products = mul(unsqueeze(call["x1"], -1), unsqueeze(call["x2"], -2));
  return linear(flatten(products, -2, -1), flatten(call["weight"], 1, 2), call.maybe("bias"));
}

}  // namespace

void add_layers(Vocabulary& vocabulary) {
  vocabulary["Linear"] = single(
      [](const Call& call) { return linear(call["x"], call["weight"], call.maybe("bias")); });
  vocabulary["Embedding"] = single(embedded);
  vocabulary["EmbeddingBag"] = single(embedding_bag);
  vocabulary["LayerNorm"] = single(layer_norm);
  vocabulary["RMSNorm"] = single(rms_norm);
  vocabulary["GroupNorm"] = single(group_norm);
  for (const char* axes : {"1d", "2d", "3d"}) {
    vocabulary[std::string("InstanceNorm") + axes] = single(instance_norm);
  }
  vocabulary["PReLU"] = single(prelu);
  vocabulary["Bilinear"] = single(bilinear);
}

}  // namespace sotto::conformance
