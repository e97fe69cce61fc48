#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/utf8.h"
#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/model_blocks.h"
#include "nn/models/vision_transformer.h"

namespace sotto::nn {

namespace {

constexpr char names[] = R"(# ViT and DeiT as timm writes them
known   patch_embed.proj.weight
cls_token                            =
dist_token                           =
reg_token                            =
pos_embed                            =
patch_embed.proj.{weight,bias}       =
blocks.*.norm1.{weight,bias}         =
blocks.*.attn.qkv.{weight,bias}      =
blocks.*.attn.proj.{weight,bias}     =
blocks.*.ls1.gamma                   =
blocks.*.norm2.{weight,bias}         =
blocks.*.mlp.fc1.{weight,bias}       =
blocks.*.mlp.fc2.{weight,bias}       =
blocks.*.ls2.gamma                   =
norm.{weight,bias}                   =
fc_norm.{weight,bias}                =
head.{weight,bias}                   =  head
head_dist.{weight,bias}              =  head
)";

struct Size {
  std::int64_t features, blocks, heads;
  double mlp_ratio = 4;
};

const std::map<std::string, Size>& sizes() {
  static const std::map<std::string, Size> all{{"tiny", {192, 12, 3}},
                                               {"wee", {256, 14, 4, 5}},
                                               {"little", {320, 14, 5, 5.6}},
                                               {"small", {384, 12, 6}},
                                               {"medium", {512, 12, 8}},
                                               {"mediumd", {512, 20, 8}},
                                               {"betwixt", {640, 12, 10}},
                                               {"base", {768, 12, 12}},
                                               {"large", {1024, 24, 16}},
                                               {"huge", {1280, 32, 16}},
                                               {"giant", {1408, 40, 16, 48.0 / 11}},
                                               {"gigantic", {1664, 48, 16, 64.0 / 13}}};
  return all;
}

// The settings of timm's function of that name, which its config.json does not repeat. Throws
// std::invalid_argument for a name that is not known.
nlohmann::json settings_of(const std::string& name) {
  static const std::regex form(
      "(vit|deit|deit3)_([a-z]+?)(_distilled)?_patch([0-9]+)(_reg([0-9]+))?(_gap)?(_dinov2)?"
      "(_([0-9]+))?(_miil)?");
  std::smatch part;
  constexpr std::size_t longest = 100;  // std::regex calls itself for each character
  check(name.size() <= longest && std::regex_match(name, part, form) && sizes().count(part[2]),
        "timm: architecture {} is not supported", excerpt(name));
  const std::string size = part[2];
  const auto& [features, blocks, heads, mlp_ratio] = sizes().at(size);
  const bool registers = part[5].matched, gap = part[7].matched, dino = part[8].matched,
             third = part[1] == "deit3", narrow = size == "medium" || size == "betwixt";
  nlohmann::json settings{{"embed_dim", features},
                          {"depth", blocks},
                          {"num_heads", gap && !registers && size == "base" ? 16 : heads},
                          {"mlp_ratio", mlp_ratio},
                          {"patch_size", std::stoll(part[4])},
                          {"img_size", part[10].matched ? std::stoll(part[10])
                                       : dino           ? 518
                                                        : 224},
                          {"distilled", part[3].matched},
                          {"no_embed_class", third || registers},
                          {"class_token", !gap},
                          {"reg_tokens", registers ? std::stoll(part[6]) : 0}};
  if (gap) settings["global_pool"] = "avg";
  if (gap && !registers) settings["fc_norm"] = false;
  if (part[11].matched || (gap && !registers && narrow)) settings["qkv_bias"] = false;
  const bool scaled = third || dino || (registers && size != "base") || (gap && narrow);
  if (scaled) settings["init_values"] = 1e-5;
  return settings;
}

// Throws std::invalid_argument for an option that changes what is computed and is not supported.
void check_arguments(const nlohmann::json& arguments) {
  static const std::vector<std::string> known{
      "img_size",    "patch_size",    "in_chans",       "num_classes",    "global_pool",
      "embed_dim",   "depth",         "num_heads",      "mlp_ratio",      "qkv_bias",
      "init_values", "class_token",   "no_embed_class", "reg_tokens",     "fc_norm",
      "drop_rate",   "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
      "weight_init", "fix_init",      "act_layer",      "strict_img_size"};
  static const nlohmann::json values{{"qk_norm", false},
                                     {"pre_norm", false},
                                     {"final_norm", true},
                                     {"proj_bias", true},
                                     {"scale_attn_norm", false},
                                     {"scale_mlp_norm", false},
                                     {"dynamic_img_size", false},
                                     {"dynamic_img_pad", false},
                                     {"pos_embed", "learn"},
                                     {"patch_drop_rate", 0.0},
                                     {"pool_include_prefix", false},
                                     {"norm_layer", "layernorm"},
                                     {"attn_layer", "attn"},
                                     {"mlp_layer", "mlp"},
                                     {"distilled_training", false}};
  ConfigFields(arguments).check_known("model_args", known, values);
}

std::int64_t classes_of(const ConfigFields& fields, const PretrainedOptions& options) {
  if (options.classes > 0) return options.classes;
  return fields.index("num_classes").value_or(1000);
}

EncoderBlockOptions block_of(const ConfigFields& fields) {
  const std::int64_t features = fields.size("embed_dim");
  EncoderBlockOptions block{
      .features = features,
      .heads = fields.size("num_heads"),
      .hidden_features = static_cast<std::int64_t>(static_cast<double>(features) *
                                                   fields.positive("mlp_ratio", 4)),
      .names = {.query_key_value = "attn.qkv",
                .projection = "attn.proj",
                .attention_norm = "norm1",
                .fc1 = "mlp.fc1",
                .fc2 = "mlp.fc2",
                .feed_forward_norm = "norm2",
                .attention_scale = "ls1.gamma",
                .feed_forward_scale = "ls2.gamma"},
      .activation = activation_of(fields.text("act_layer", "gelu"), "act_layer"),
      .norm_eps = 1e-6,  // timm's own: no field sets it
      .norm_first = true,
      .query_key_value_bias = fields.flag("qkv_bias", true),
      .attention_dropout = fields.rate("attn_drop_rate", 0),
      .projection_dropout = fields.rate("proj_drop_rate", 0)};
  block.feed_forward_dropout = block.hidden_dropout = block.projection_dropout;
  const double scale = fields.number("init_values", 0);
  if (scale != 0) block.layer_scale = scale;
  return block;
}

VisionNames names_of(const ConfigFields& fields, bool norm_after_mean) {
  VisionNames parts{.register_tokens = "reg_token",
                    .positions = "pos_embed",
                    .patches = "patch_embed.proj",
                    .blocks = "blocks",
                    .norm = norm_after_mean ? "fc_norm" : "norm",
                    .head = "head"};
  if (fields.flag("class_token", true)) parts.cls_token = "cls_token";
  if (fields.flag("distilled", false)) {
    parts.distillation_token = "dist_token";
    parts.distillation_head = "head_dist";
  }
  return parts;
}

std::unique_ptr<PretrainedModel> make(const nlohmann::json& config,
                                      const PretrainedOptions& options) {
  const ConfigFields top(config);
  nlohmann::json merged = settings_of(top.text("architecture", options.architecture));
  check_arguments(top.object("model_args"));
  merged.update(top.object("model_args"));
  for (const char* field : {"num_classes", "global_pool"}) {
    if (top.has(field)) merged[field] = config.at(field);
  }
  const ConfigFields fields(merged);
  const std::string pool = fields.text("global_pool", "token");
  check(pool == "token" || pool == "avg", "config: {} = {} is not supported", "global_pool",
        excerpt(pool));
  const bool mean = pool == "avg", after = fields.flag("fc_norm", mean);
  VisionTransformerOptions vit{.names = names_of(fields, after),
                               .channels = fields.size("in_chans", 3),
                               .image = fields.pair("img_size", 224),
                               .patch = fields.pair("patch_size", 16),
                               .registers = fields.index("reg_tokens").value_or(0),
                               .positions_of_patches_only = fields.flag("no_embed_class", false),
                               .resampling = Bicubic::smooth,
                               .block_count = fields.size("depth"),
                               .block = block_of(fields),
                               .drop_path = fields.rate("drop_path_rate", 0),
                               .position_dropout = fields.rate("pos_drop_rate", 0),
                               .mean_of_patches = mean,
                               .norm_after_mean = after,
                               .head_dropout = fields.rate("drop_rate", 0),
                               .classes = classes_of(fields, options)};
  check(mean || !vit.names.cls_token.empty(), "config: {} = {} needs {} = true", "global_pool",
        pool, "class_token");
  return std::make_unique<VisionTransformer>(vit);
}

void set_image_size(nlohmann::json& config, std::int64_t size) {
  config["model_args"]["img_size"] = size;
  const auto usual = config.find("pretrained_cfg");
  if (usual == config.end() || !usual->is_object()) return;
  for (const char* field : {"input_size", "test_input_size"}) {
    nlohmann::json& sizes = (*usual)[field];
    if (sizes.is_array() && sizes.size() == 3) sizes = {sizes[0], size, size};
  }
}

}  // namespace

Architecture timm_vit_architecture() {
  return {.names = {"vit_**", "deit_**", "deit3_**"},
          .tables = {names},
          .make = make,
          .set_image_size = set_image_size};
}

}  // namespace sotto::nn
