// Llama in files: names, and the fields of config.json or of a GGUF file's metadata.
#include <nlohmann/json.hpp>

#include "core/io/utf8.h"
#include "core/io/weights_file.h"
#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/llama.h"

namespace sotto::nn {

namespace {

// By transformers.
constexpr const char* names = R"(
known   layers.0.input_layernorm.weight
prefix  model.
embed_tokens.weight                             =
layers.*.input_layernorm.weight                 =
layers.*.self_attn.{q_proj,k_proj,v_proj,o_proj}.weight   =
layers.*.self_attn.{q_proj,k_proj,v_proj,o_proj}.bias     =
layers.*.post_attention_layernorm.weight        =
layers.*.mlp.{gate_proj,up_proj,down_proj}.weight         =
layers.*.mlp.{gate_proj,up_proj,down_proj}.bias           =
norm.weight                                     =
lm_head.weight                                  =  head tied embed_tokens.weight
layers.*.self_attn.rotary_emb.inv_freq          -  ignored   # computed; in files before late 2023
rotary_emb.inv_freq                             -  ignored   # computed
score.weight                                    -  outside other-task   # a classifier
)";

// By llama.cpp, in GGUF files: of Llama, with the rotary layout of Meta's files ...
constexpr const char* gguf_names = R"(
known   blk.0.attn_norm.weight
token_embd.weight               embed_tokens.weight
blk.*.attn_norm.weight          layers.*.input_layernorm.weight
blk.*.attn_q.{weight,bias}      layers.*.self_attn.q_proj.{weight,bias}  paired num_attention_heads
blk.*.attn_k.{weight,bias}      layers.*.self_attn.k_proj.{weight,bias}  paired num_key_value_heads
blk.*.attn_v.{weight,bias}      layers.*.self_attn.v_proj.{weight,bias}
blk.*.attn_output.{weight,bias} layers.*.self_attn.o_proj.{weight,bias}
blk.*.ffn_norm.weight           layers.*.post_attention_layernorm.weight
blk.*.ffn_gate.{weight,bias}    layers.*.mlp.gate_proj.{weight,bias}
blk.*.ffn_up.{weight,bias}      layers.*.mlp.up_proj.{weight,bias}
blk.*.ffn_down.{weight,bias}    layers.*.mlp.down_proj.{weight,bias}
output_norm.weight              norm.weight
output.weight                   lm_head.weight  head tied embed_tokens.weight
rope_freqs.weight               -  ignored   # read into the config
)";

// The numbers by which longrope divides frequencies, if they are those of rows of any length, and
// attention is not scaled.
std::vector<double> read_divisors(const nlohmann::json& scaling) {
  const ConfigFields fields(scaling);
  check(fields.has("attention_factor"), "config: attention_factor is missing beside longrope");
  fields.require("attention_factor", 1.0);
  const nlohmann::json list = scaling.value("short_factor", nlohmann::json());
  check(list.is_array(), "config: short_factor is {}, not a list", shown(list));
  fields.require("long_factor", list);
  std::vector<double> divisors;
  for (const nlohmann::json& value : list) {
    check(value.is_number() && value > 0, "config: short_factor holds {}", shown(value));
    divisors.push_back(value.get<double>());
  }
  return divisors;
}

// The scaling of frequencies, in the fields of version 5 of the package or of version 4.
RotaryConfig read_rotary(const ConfigFields& fields) {
  RotaryConfig config;
  config.base = fields.positive("rope_theta", config.base);
  fields.require("partial_rotary_factor", 1.0);
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(field)) continue;
    const ConfigFields part(fields.object(field));
    const std::string kind = part.text("rope_type", part.text("type", "default"));
    config.base = part.positive("rope_theta", config.base);
    part.require("partial_rotary_factor", 1.0);
    if (kind == "default") continue;
    check(kind == "linear" || kind == "llama3" || kind == "longrope",
          "config: {}: rope_type = {} is not supported, only default, linear, llama3 and longrope",
          field, excerpt(kind));
    if (kind == "longrope") {
      config.scaling = RotaryConfig::Scaling::divided;
      config.divisors = read_divisors(fields.object(field));
      continue;
    }
    check(part.has("factor"), "config: {}: factor is missing", field);
    config.factor = part.positive("factor", 1);
    config.scaling = RotaryConfig::Scaling::linear;
    if (kind == "linear") continue;
    config.scaling = RotaryConfig::Scaling::llama3;
    config.low = part.positive("low_freq_factor", config.low);
    config.high = part.positive("high_freq_factor", config.high);
    config.original = part.positive("original_max_position_embeddings", config.original);
    check(config.high > config.low, "config: high_freq_factor {} is not above low_freq_factor {}",
          config.high, config.low);
  }
  return config;
}

// The biases of the attention's layers, which the families have in different places; and windows.
void read_biases(const nlohmann::json& json, LlamaConfig& config) {
  const ConfigFields fields(json);
  const std::string family = fields.text("model_type", "llama");

  if (family == "qwen2") {
    fields.require("use_sliding_window", false);
    config.qkv_bias = true;
    return;
  }
  if (family == "mistral") {
    fields.require("sliding_window", nullptr);
    check(json.contains("sliding_window"),
          "config: sliding_window is missing, which is 4096: that is not supported");
  }
  config.qkv_bias = config.output_bias = fields.flag("attention_bias", false);
  config.mlp_bias = fields.flag("mlp_bias", false);
}

LlamaConfig read_config(const nlohmann::json& json) {
  const ConfigFields fields(json);
  LlamaConfig config;
  read_biases(json, config);
  config.vocabulary = fields.size("vocab_size", config.vocabulary);
  config.width = fields.size("hidden_size", config.width);
  config.inner = fields.size("intermediate_size", config.inner);
  config.layers = fields.size("num_hidden_layers", config.layers);
  config.heads = fields.size("num_attention_heads", config.heads);
  config.kv_heads = fields.size("num_key_value_heads", config.heads);
  if (!fields.has("head_dim"))
    fields.check_divides("hidden_size", config.width, "num_attention_heads", config.heads);
  config.head_width = fields.size("head_dim", config.width / config.heads);
  fields.check_divides("num_attention_heads", config.heads, "num_key_value_heads", config.kv_heads);
  fields.check_divides("head_dim", config.head_width, "halves", 2);
  constexpr std::int64_t widest = 1 << 16;  // each feature has a frequency before weights are read
  check(config.head_width <= widest, "config: heads of {} features, above {}", config.head_width,
        widest);
  config.positions = fields.size("max_position_embeddings", config.positions);
  config.activation = fields.text("hidden_act", config.activation);
  config.epsilon = fields.positive("rms_norm_eps", config.epsilon);
  config.rotary = read_rotary(fields);
  config.tied = fields.flag("tie_word_embeddings", false);
  config.padding = fields.index("pad_token_id");
  check(!config.padding || *config.padding < config.vocabulary,
        "config: pad_token_id {} in a vocabulary of {}", config.padding.value_or(0),
        config.vocabulary);
  config.attention_dropout = fields.rate("attention_dropout", 0);
  config.initializer_range = fields.positive("initializer_range", config.initializer_range);
  return config;
}

// The scaling of frequencies of a GGUF file; null: none. Divisors, as Llama 3.1 has them there, are
// longrope's of rows of any length.
nlohmann::json gguf_scaling(const WeightsFile& file) {
  constexpr const char* divisors = "rope_freqs.weight";
  const ConfigFields metadata(file.metadata());
  const std::string kind = metadata.text("llama.rope.scaling.type", "none");
  if (!file.tensors().contains(divisors)) {
    if (kind == "none") return nullptr;
    return {{"rope_type", kind},
            {"factor", file.metadata().value("llama.rope.scaling.factor", nlohmann::json())}};
  }
  check(kind == "none", "weights: {}: {} beside llama.rope.scaling.type = {} is not supported",
        file.path(), divisors, excerpt(kind));
  const Tensor values = file.tensor(divisors);
  check(values.rank() == 1 && values.dtype() == Dtype::f32, "weights: {}: {} is {} {}", file.path(),
        divisors, sotto::name(values.dtype()), values.shape());
  const std::vector<float> list = values.to_vector<float>();
  return {{"rope_type", "longrope"},
          {"short_factor", list},
          {"long_factor", list},
          {"factor", 1.0},
          {"attention_factor", 1.0},
          {"original_max_position_embeddings", metadata.size("llama.context_length", 1)}};
}

// The config of a GGUF file, from its metadata; nothing for other files.
nlohmann::json config_of(const WeightsFile& file, const PretrainedOptions&) {
  const nlohmann::json& metadata = file.metadata();
  nlohmann::json json = nlohmann::json::object();
  if (!metadata.contains("llama.block_count")) return json;
  const auto given = [&](const char* field, const char* key) {
    if (metadata.contains(key)) json[field] = metadata[key];
  };
  json["model_type"] = "llama";
  json["architectures"] = {"LlamaForCausalLM"};
  given("hidden_size", "llama.embedding_length");
  given("intermediate_size", "llama.feed_forward_length");
  given("num_hidden_layers", "llama.block_count");
  given("num_attention_heads", "llama.attention.head_count");
  json["num_key_value_heads"] = json.value("num_attention_heads", nlohmann::json());
  given("num_key_value_heads", "llama.attention.head_count_kv");
  given("head_dim", "llama.attention.key_length");
  given("max_position_embeddings", "llama.context_length");
  given("rms_norm_eps", "llama.attention.layer_norm_rms_epsilon");
  given("rope_theta", "llama.rope.freq_base");
  given("bos_token_id", "tokenizer.ggml.bos_token_id");
  given("eos_token_id", "tokenizer.ggml.eos_token_id");
  const ConfigFields fields(json);
  if (const auto rotated = ConfigFields(metadata).index("llama.rope.dimension_count")) {
    const std::int64_t width = fields.size(
        "head_dim", fields.size("hidden_size", 1) / fields.size("num_attention_heads", 1));
    check(*rotated == width,
          "weights: {}: llama.rope.dimension_count {} of {} features is not supported", file.path(),
          *rotated, width);
  }
  const nlohmann::json scaling = gguf_scaling(file);
  if (!scaling.is_null()) json["rope_scaling"] = scaling;
  const auto table = file.tensors().find("token_embd.weight");
  if (table != file.tensors().end() && table->second.shape.rank() == 2)
    json["vocab_size"] = table->second.shape[0];
  json["tie_word_embeddings"] = !file.tensors().contains("output.weight");
  json["attention_bias"] = file.tensors().contains("blk.0.attn_q.bias");
  return json;
}

}  // namespace

Architecture llama_architecture() {
  return {
      .names = {"llama", "mistral", "qwen2", "LlamaForCausalLM", "LlamaModel", "MistralForCausalLM",
                "Qwen2ForCausalLM"},
      .tables = {names, gguf_names},
      .make = [](const nlohmann::json& config,
                 const PretrainedOptions&) { return std::make_unique<Llama>(read_config(config)); },
      .config_of = config_of};
}

}  // namespace sotto::nn
