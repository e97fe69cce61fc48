#include <nlohmann/json.hpp>

#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/model_blocks.h"
#include "nn/models/vision_transformer.h"

namespace sotto::nn {

namespace {

// ViT and DeiT as transformers writes them, but for the prefix and the blocks.
constexpr char names[] = R"(
embeddings.cls_token                                  =
embeddings.distillation_token                         =  # of DeiT
embeddings.position_embeddings                        =
embeddings.patch_embeddings.projection.{weight,bias}  =
layernorm.{weight,bias}                               =
classifier.{weight,bias}                              =  head
cls_classifier.{weight,bias}                          =  head  # of DeiT with a teacher
distillation_classifier.{weight,bias}                 =  head
pooler.dense.{weight,bias}  -  ignored             # of ViTModel: no classifier reads it
embeddings.mask_token       -  ignored             # of masked image modelling
decoder.**                  -  outside other-task  # masked image modelling
)";

constexpr char blocks[] = R"(
known   encoder.layer.0.layernorm_before.weight
encoder.layer.*.layernorm_before.{weight,bias}           =
encoder.layer.*.layernorm_after.{weight,bias}            =
encoder.layer.*.attention.attention.query.{weight,bias}  =
encoder.layer.*.attention.attention.key.{weight,bias}    =
encoder.layer.*.attention.attention.value.{weight,bias}  =
encoder.layer.*.attention.output.dense.{weight,bias}     =
encoder.layer.*.intermediate.dense.{weight,bias}         =
encoder.layer.*.output.dense.{weight,bias}               =
)";

constexpr char blocks_of_version_5[] = R"(# with save_original_format=False
known   layers.0.layernorm_before.weight
layers.*.layernorm_before.{weight,bias}  encoder.layer.*.layernorm_before.{weight,bias}
layers.*.layernorm_after.{weight,bias}   encoder.layer.*.layernorm_after.{weight,bias}
layers.*.attention.q_proj.{weight,bias}  encoder.layer.*.attention.attention.query.{weight,bias}
layers.*.attention.k_proj.{weight,bias}  encoder.layer.*.attention.attention.key.{weight,bias}
layers.*.attention.v_proj.{weight,bias}  encoder.layer.*.attention.attention.value.{weight,bias}
layers.*.attention.o_proj.{weight,bias}  encoder.layer.*.attention.output.dense.{weight,bias}
layers.*.mlp.fc1.{weight,bias}           encoder.layer.*.intermediate.dense.{weight,bias}
layers.*.mlp.fc2.{weight,bias}           encoder.layer.*.output.dense.{weight,bias}
)";

std::vector<std::string> tables(const std::string& prefix) {
  const std::string first = "prefix  " + prefix + names;
  return {first + blocks, first + blocks_of_version_5};
}

VisionTransformerOptions body(const nlohmann::json& config) {
  const ConfigFields fields(config);
  const double dropout = fields.rate("hidden_dropout_prob", 0);
  return {.names = {.cls_token = "embeddings.cls_token",
                    .positions = "embeddings.position_embeddings",
                    .patches = "embeddings.patch_embeddings.projection",
                    .blocks = "encoder.layer",
                    .norm = "layernorm",
                    .head = "classifier"},
          .channels = fields.size("num_channels", 3),
          .image = fields.pair("image_size", 224),
          .patch = fields.pair("patch_size", 16),
          .block_count = fields.size("num_hidden_layers", 12),
          .block = {.features = fields.size("hidden_size", 768),
                    .heads = fields.size("num_attention_heads", 12),
                    .hidden_features = fields.size("intermediate_size", 3072),
                    .names = {.query = "attention.attention.query",
                              .key = "attention.attention.key",
                              .value = "attention.attention.value",
                              .projection = "attention.output.dense",
                              .attention_norm = "layernorm_before",
                              .fc1 = "intermediate.dense",
                              .fc2 = "output.dense",
                              .feed_forward_norm = "layernorm_after"},
                    .activation = activation_of(fields.text("hidden_act", "gelu"), "hidden_act"),
                    .norm_eps = fields.positive("layer_norm_eps", 1e-12),
                    .norm_first = true,
                    .query_key_value_bias = fields.flag("qkv_bias", true),
                    .attention_dropout = fields.rate("attention_probs_dropout_prob", 0),
                    .projection_dropout = dropout,
                    .feed_forward_dropout = dropout},
          .position_dropout = dropout};
}

bool asks_for_classifier(const nlohmann::json& config, const PretrainedOptions& options) {
  return options.classes > 0 ||
         ConfigFields(config).architecture().find("ForImageClassification") < std::string::npos;
}

std::unique_ptr<PretrainedModel> make_vit(const nlohmann::json& config,
                                          const PretrainedOptions& options) {
  VisionTransformerOptions vit = body(config);
  if (asks_for_classifier(config, options)) vit.classes = ConfigFields(config).classes();
  return std::make_unique<VisionTransformer>(vit);
}

std::unique_ptr<PretrainedModel> make_deit(const nlohmann::json& config,
                                           const PretrainedOptions& options) {
  VisionTransformerOptions deit = body(config);
  deit.names.distillation_token = "embeddings.distillation_token";
  if (asks_for_classifier(config, options)) deit.classes = ConfigFields(config).classes();
  if (ConfigFields(config).architecture().ends_with("WithTeacher")) {
    deit.names.head = "cls_classifier";
    deit.names.distillation_head = "distillation_classifier";
  }
  return std::make_unique<VisionTransformer>(deit);
}

void set_image_size(nlohmann::json& config, std::int64_t size) { config["image_size"] = size; }

}  // namespace

Architecture vit_architecture() {
  return {.names = {"vit", "ViTModel", "ViTFor**"},
          .tables = tables("vit."),
          .make = make_vit,
          .set_image_size = set_image_size};
}

Architecture deit_architecture() {
  return {.names = {"deit", "DeiT**"},
          .tables = tables("deit."),
          .make = make_deit,
          .set_image_size = set_image_size};
}

}  // namespace sotto::nn
