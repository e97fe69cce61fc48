// GPT-2 in files: names, and the fields of config.json.
#include <nlohmann/json.hpp>

#include "core/io/weights_file.h"
#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/gpt2.h"

namespace sotto::nn {

namespace {

// By transformers. Matrices inside blocks are its Conv1D, [in, out].
constexpr const char* names = R"(
known   h.0.ln_1.weight
prefix  transformer.
wte.weight                      =
wpe.weight                      =
h.*.ln_1.{weight,bias}          =
h.*.attn.c_attn.weight          =  transposed
h.*.attn.c_attn.bias            =
h.*.attn.c_proj.weight          =  transposed
h.*.attn.c_proj.bias            =
h.*.ln_2.{weight,bias}          =
h.*.mlp.c_fc.weight             =  transposed
h.*.mlp.c_fc.bias               =
h.*.mlp.c_proj.weight           =  transposed
h.*.mlp.c_proj.bias             =
ln_f.{weight,bias}              =
lm_head.weight                  =  head tied wte.weight
h.*.attn.bias                   -  ignored      # the causal mask, in files before mid-2023
h.*.attn.masked_bias            -  ignored      # a number for hidden scores, in the same files
score.weight                    -  outside other-task   # a classifier
multiple_choice_head.**         -  outside other-task   # a choice of texts
)";

// By llama.cpp, in GGUF files.
constexpr const char* gguf_names = R"(
known   blk.0.attn_qkv.weight
token_embd.weight               wte.weight
position_embd.weight            wpe.weight
blk.*.attn_norm.{weight,bias}   h.*.ln_1.{weight,bias}
blk.*.attn_qkv.{weight,bias}    h.*.attn.c_attn.{weight,bias}
blk.*.attn_output.{weight,bias} h.*.attn.c_proj.{weight,bias}
blk.*.ffn_norm.{weight,bias}    h.*.ln_2.{weight,bias}
blk.*.ffn_up.{weight,bias}      h.*.mlp.c_fc.{weight,bias}
blk.*.ffn_down.{weight,bias}    h.*.mlp.c_proj.{weight,bias}
output_norm.{weight,bias}       ln_f.{weight,bias}
output.weight                   lm_head.weight  head tied wte.weight
)";

Gpt2Config read_config(const nlohmann::json& json) {
  const ConfigFields fields(json);
  fields.require("add_cross_attention", false);
  Gpt2Config config;
  config.vocabulary = fields.size("vocab_size", config.vocabulary);
  config.positions = fields.size("n_positions", fields.size("n_ctx", config.positions));
  config.width = fields.size("n_embd", config.width);
  config.layers = fields.size("n_layer", config.layers);
  config.heads = fields.size("n_head", config.heads);
  config.inner = fields.has("n_inner") ? fields.size("n_inner") : 0;
  config.activation = fields.text("activation_function", config.activation);
  config.epsilon = fields.positive("layer_norm_epsilon", config.epsilon);
  config.scale_weights = fields.flag("scale_attn_weights", true);
  config.scale_by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  config.tied = fields.flag("tie_word_embeddings", true);
  config.attention_dropout = fields.rate("attn_pdrop", config.attention_dropout);
  config.embedding_dropout = fields.rate("embd_pdrop", config.embedding_dropout);
  config.residual_dropout = fields.rate("resid_pdrop", config.residual_dropout);
  config.initializer_range = fields.positive("initializer_range", config.initializer_range);
  fields.check_divides("n_embd", config.width, "n_head", config.heads);
  return config;
}

// The config of a file that has none, by the shapes; all published sizes have heads of 64 features.
nlohmann::json config_of(const WeightsFile& file, const PretrainedOptions&) {
  constexpr std::int64_t head_width = 64;
  nlohmann::json json = {{"model_type", "gpt2"}};
  const nlohmann::json& metadata = file.metadata();
  std::int64_t layers = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool matrix = tensor.shape.rank() == 2;
    if (matrix && (name.ends_with("wte.weight") || name == "token_embd.weight")) {
      json["vocab_size"] = tensor.shape[0];
      json["n_embd"] = tensor.shape[1];
      json["n_head"] = std::max<std::int64_t>(1, tensor.shape[1] / head_width);
    }
    if (matrix && (name.ends_with("wpe.weight") || name == "position_embd.weight"))
      json["n_positions"] = tensor.shape[0];
    layers += name.ends_with("ln_1.weight") || name.ends_with("attn_norm.weight");
  }
  json["n_layer"] = layers;
  const auto given = [&](const char* field, const char* key) {
    if (metadata.contains(key)) json[field] = metadata[key];
  };
  given("n_head", "gpt2.attention.head_count");
  given("n_inner", "gpt2.feed_forward_length");
  given("layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon");
  return json;
}

}  // namespace

Architecture gpt2_architecture() {
  return {
      .names = {"gpt2", "gpt2-**", "distilgpt2", "GPT2LMHeadModel", "GPT2Model"},
      .tables = {names, gguf_names},
      .make = [](const nlohmann::json& config,
                 const PretrainedOptions&) { return std::make_unique<Gpt2>(read_config(config)); },
      .config_of = config_of};
}

}  // namespace sotto::nn
