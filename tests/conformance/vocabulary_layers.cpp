#include "nn/functional.h"
#include "nn/layers/embedding_bag.h"
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
  vocabulary["PReLU"] =
      single([](const Call& call) { return nn::prelu(call["x"], call["weight"]); });
  vocabulary["Bilinear"] = single([](const Call& call) {
    return nn::bilinear(call["x1"], call["x2"], call["weight"], call.maybe("bias"));
  });
}

}  // namespace sotto::conformance
