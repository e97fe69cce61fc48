// ViT and DeiT: tokens, heads and each image's own gradient, as transformers and timm name them.
#include "nn/models/vision_transformer.h"
#include "nn/init.h"
#include "tests/nn/models/encoder_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using nlohmann::json;

namespace {

json vit_config(const std::string& name) {
  return {{"architectures", {name}},  {"image_size", 8},         {"patch_size", 4},
          {"num_channels", 2},        {"hidden_size", 8},        {"num_hidden_layers", 2},
          {"num_attention_heads", 2}, {"intermediate_size", 12}, {"num_labels", 3}};
}

json timm_config(const std::string& architecture, const json& more = json::object()) {
  json arguments{{"img_size", {8, 12}}, {"patch_size", 4}, {"embed_dim", 8},  {"depth", 2},
                 {"num_heads", 2},      {"in_chans", 2},   {"mlp_ratio", 1.5}};
  arguments.update(more);
  json config{{"architecture", architecture}, {"num_classes", 3}, {"model_args", arguments}};
  if (arguments.contains("global_pool")) config["global_pool"] = arguments["global_pool"];
  return config;
}

struct Kind {
  const char* name;
  nn::Architecture architecture;
  json config;
};

std::vector<Kind> kinds() {
  const nn::Architecture timm = nn::timm_vit_architecture();
  return {{"ViT", nn::vit_architecture(), vit_config("ViTForImageClassification")},
          {"DeiT", nn::deit_architecture(), vit_config("DeiTForImageClassification")},
          {"teacher", nn::deit_architecture(), vit_config("DeiTForImageClassificationWithTeacher")},
          {"timm", timm, timm_config("vit_tiny_patch16_224")},
          {"timm, mean", timm, timm_config("vit_small_patch16_224", {{"global_pool", "avg"}})},
          {"timm, distilled", timm, timm_config("deit_tiny_distilled_patch16_224")},
          {"timm, deit3", timm, timm_config("deit3_small_patch16_224", {{"init_values", 0.1}})},
          {"timm, registers", timm, timm_config("vit_medium_patch16_reg4_gap_256")},
          {"timm, no class token", timm, timm_config("vit_medium_patch16_gap_240")}};
}

std::unique_ptr<nn::PretrainedModel> made(const Kind& kind) {
  nn::manual_seed(7);
  return kind.architecture.make(kind.config, {});
}

Tensor images(const Kind& kind) {
  const std::int64_t width = kind.config.contains("model_args") ? 12 : 8;
  nn::manual_seed(8);
  return to_dtype(nn::random_normal({2, 2, 8, width}), Dtype::f64);
}

std::vector<std::string> names(nn::Module& model) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : model.named_parameters()) all.push_back(name);
  return all;
}

Tensor value_of(nn::Module& model, const std::string& name) {
  for (const auto& [path, parameter] : model.named_parameters()) {
    if (path == name) return clone(parameter->value);
  }
  return {};
}

bool has(nn::Module& model, const std::string& name) {
  const std::vector<std::string> all = names(model);
  return std::find(all.begin(), all.end(), name) != all.end();
}

}  // namespace

TEST_CASE("each image has the gradient of the image alone, class token and positions too") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind);
    model->to(Dtype::f64);
    const Tensor all = images(kind);
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 2}, {2});
    check_rows_alone(
        *model,
        [&](Tape& tape, std::int64_t begin, std::int64_t end) {
          return cross_entropy((*model)(tape.input(all.slice(0, begin, end))),
                               labels.slice(0, begin, end));
        },
        2);
  }
}

TEST_CASE("the names of a vision transformer are its publisher's") {
  const std::vector<Kind> all = kinds();
  CHECK(has(*made(all[0]), "encoder.layer.1.attention.attention.query.weight"));
  CHECK(has(*made(all[1]), "embeddings.distillation_token"));
  CHECK_FALSE(has(*made(all[1]), "cls_classifier.weight"));
  CHECK(has(*made(all[2]), "distillation_classifier.bias"));
  CHECK(has(*made(all[3]), "blocks.1.attn.qkv.bias"));
  CHECK(has(*made(all[4]), "fc_norm.weight"));
  CHECK_FALSE(has(*made(all[4]), "norm.weight"));
  CHECK(has(*made(all[5]), "head_dist.weight"));
  CHECK(has(*made(all[6]), "blocks.0.ls2.gamma"));
  CHECK(has(*made(all[7]), "reg_token"));
  CHECK_FALSE(has(*made(all[8]), "cls_token"));
  CHECK_FALSE(has(*made(all[8]), "blocks.0.attn.qkv.bias"));
  CHECK(made(all[0])->parts().block(1) == "encoder.layer.1");
}

TEST_CASE("features that are kept give the logits of the whole model") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind);
    auto& vit = dynamic_cast<nn::ImageModel&>(*model);
    Tape tape({.training = false});
    const Var x = tape.input(to_dtype(images(kind), Dtype::f32));
    CHECK(values_of(vit.classify(vit.features(x))) == values_of((*model)(x)));
    for (std::int64_t k = 0; k <= vit.parts().block_count; ++k)
      CHECK(values_of(vit.from_block(vit.before_block(x, k), k)) == values_of((*model)(x)));
  }
}

TEST_CASE(
    "without a classifier the result is the features, and the mean of a distilled model's two") {
  for (Kind kind : kinds()) {
    if (!kind.config.contains("model_args")) continue;
    INFO(kind.name);
    kind.config["num_classes"] = 0;
    const auto model = made(kind);
    auto& vit = dynamic_cast<nn::ImageModel&>(*model);
    Tape tape({.training = false});
    const Var x = tape.input(to_dtype(images(kind), Dtype::f32)), features = vit.features(x);
    const bool distilled = has(*model, "dist_token");
    CHECK(features.shape() == Shape{2, distilled ? 16 : 8});
    const std::vector<Var> halves = chunk(features, 1, 2);
    CHECK(values_of((*model)(x)) ==
          values_of(distilled ? (halves[0] + halves[1]) * 0.5 : features));
  }
}

TEST_CASE("dropped paths are whole branches of a sample, in training only") {
  const Kind kind{"", nn::timm_vit_architecture(),
                  timm_config("vit_tiny_patch16_224", {{"drop_path_rate", 0.9}})};
  const auto model = made(kind);
  const Tensor x = to_dtype(images(kind), Dtype::f32);
  const auto run = [&](const Tensor& rows, bool training, std::int64_t first) {
    Tape tape({.training = training, .seed = 1, .first_row = first});
    return values_of((*model)(tape.input(rows)));
  };
  const auto both = run(x, true, 0), second = run(x.slice(0, 1, 2), true, 1);
  for (std::size_t i = 0; i < 3; ++i) CHECK(second[i] == Approx(both[3 + i]).epsilon(1e-5));
  CHECK(run(x, false, 0) != both);
}

TEST_CASE("positions follow images of another size, those of tokens without a place stay") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind);
    const bool timm = kind.config.contains("model_args");
    const std::string name = timm ? "pos_embed" : "embeddings.position_embeddings";
    const Tensor before = value_of(*model, name);
    dynamic_cast<nn::ImageModel&>(*model).resize_images({16, 12});
    const Tensor after = value_of(*model, name);
    const std::int64_t first = before.size(1) - (timm ? 6 : 4);
    CHECK(after.shape() == Shape{1, first + 12, 8});
    CHECK(after.slice(1, 0, first).to_vector<float>() ==
          before.slice(1, 0, first).to_vector<float>());
    Tape tape({.training = false});
    CHECK((*model)(tape.input(zeros({2, 2, 16, 12}))).shape() == Shape{2, 3});
  }
}

TEST_CASE("vision transformers that compute something else are refused by name") {
  const auto refused = [](const std::string& architecture, const json& more,
                          const std::string& text) {
    return throws(
        [&] {
          made({"", nn::timm_vit_architecture(), timm_config(architecture, more)});
        },
        text);
  };
  CHECK(refused("vit_base_patch16_clip_224", json::object(), "vit_base_patch16_clip_224"));
  CHECK(refused("vit_tiny_patch16_224", {{"qk_norm", true}}, "qk_norm"));
  CHECK(refused("vit_tiny_patch16_224", {{"gated", true}}, "gated"));
  CHECK(refused("vit_tiny_patch16_224", {{"global_pool", "map"}}, "global_pool"));
  CHECK(refused("vit_tiny_patch16_224", {{"class_token", false}}, "class_token"));
  CHECK(refused("vit_tiny_patch16_224", {{"patch_size", {4, 4, 4}}}, "patch_size"));
  CHECK(refused("vit_tiny_patch16_224", {{"num_heads", 3}}, "3 heads of 8 features"));
  const auto model = made(kinds()[0]);
  Tape tape;
  CHECK(throws([&] { (*model)(tape.input(zeros({1, 2, 12, 12}))); }, "(1, 2, 12, 12)"));
  CHECK(throws(
      [&] {
        dynamic_cast<nn::ImageModel&>(*model).resize_images({3, 8});
      },
      "patches (4, 4) in images (3, 8)"));
}
