#include "nn/models/llama.h"

#include <cmath>
#include <functional>
#include <numbers>

#include "autograd/ops/elementwise.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/decoder.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

// The frequency of Llama 3.1: short wavelengths stay, long ones are divided by the factor, and
// between the two it moves from the one to the other.
double llama3_frequency(const RotaryConfig& config, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < config.original / config.high) return frequency;
  if (wavelength > config.original / config.low) return frequency / config.factor;
  const double share = (config.original / wavelength - config.low) / (config.high - config.low);
  return (1 - share) * frequency / config.factor + share * frequency;
}

class LlamaBlock final : public DecoderBlock {
 public:
  explicit LlamaBlock(const LlamaConfig& config)
      : input_layernorm_(config.width, {.eps = config.epsilon, .writes_16bit = true}),
        post_attention_layernorm_(config.width, {.eps = config.epsilon, .writes_16bit = true}),
        heads_(config.heads),
        kv_heads_(config.kv_heads),
        activation_(activation_of(config.activation, "hidden_act")) {
    const std::int64_t queries = config.heads * config.head_width,
                       keys = config.kv_heads * config.head_width;
    q_proj_ = linear_child(config.width, queries, config.qkv_bias);
    k_proj_ = linear_child(config.width, keys, config.qkv_bias);
    v_proj_ = linear_child(config.width, keys, config.qkv_bias);
    o_proj_ = linear_child(queries, config.width, config.output_bias);
    gate_proj_ = linear_child(config.width, config.inner, config.mlp_bias);
    up_proj_ = linear_child(config.width, config.inner, config.mlp_bias);
    down_proj_ = linear_child(config.inner, config.width, config.mlp_bias);
    attention_.dropout = config.attention_dropout;
  }

  Var forward(const Var& x, const DecoderStep& step) override {
    const Var in = input_layernorm_(x);
    const Var q = rotary(split_heads((*q_proj_)(in), heads_), *step.angles),
              k = rotary(split_heads((*k_proj_)(in), kv_heads_), *step.angles),
              v = split_heads((*v_proj_)(in), kv_heads_);
    const Var y = x + (*o_proj_)(merge_heads(decoder_attention(q, k, v, step, attention_)));
    const Var u = post_attention_layernorm_(y);
    return y + (*down_proj_)(activation_((*gate_proj_)(u)) * (*up_proj_)(u));
  }
  using DecoderBlock::forward;

  void visit(const Visitor& visitor) override {
    visitor("input_layernorm", input_layernorm_);
    visitor("self_attn.q_proj", q_proj_);
    visitor("self_attn.k_proj", k_proj_);
    visitor("self_attn.v_proj", v_proj_);
    visitor("self_attn.o_proj", o_proj_);
    visitor("post_attention_layernorm", post_attention_layernorm_);
    visitor("mlp.gate_proj", gate_proj_);
    visitor("mlp.up_proj", up_proj_);
    visitor("mlp.down_proj", down_proj_);
  }

 private:
  RMSNorm input_layernorm_, post_attention_layernorm_;
  std::unique_ptr<Module> q_proj_, k_proj_, v_proj_, o_proj_, gate_proj_, up_proj_, down_proj_;
  std::int64_t heads_, kv_heads_;
  AttentionOptions attention_;
  std::function<Var(Var)> activation_;
};

}  // namespace

std::vector<double> rotary_frequencies(const RotaryConfig& config, std::int64_t e) {
  check(e >= 2 && e % 2 == 0, "rotary: heads of {} features are no pairs", e);
  const bool divided = config.scaling == RotaryConfig::Scaling::divided;
  check(!divided || std::ssize(config.divisors) == e / 2, "rotary: {} divisors of {} frequencies",
        config.divisors.size(), e / 2);
  std::vector<double> frequencies;
  for (std::int64_t j = 0; j < e / 2; ++j) {
    const double plain =
        std::pow(config.base, -2 * static_cast<double>(j) / static_cast<double>(e));
    switch (config.scaling) {
      case RotaryConfig::Scaling::none: frequencies.push_back(plain); break;
      case RotaryConfig::Scaling::linear: frequencies.push_back(plain / config.factor); break;
      case RotaryConfig::Scaling::llama3:
        frequencies.push_back(llama3_frequency(config, plain));
        break;
      case RotaryConfig::Scaling::divided:
        frequencies.push_back(plain / config.divisors[static_cast<std::size_t>(j)]);
    }
  }
  return frequencies;
}

Llama::Llama(const LlamaConfig& config)
    : config_(config),
      frequencies_(rotary_frequencies(config.rotary, config.head_width)),
      norm_(config.width, {.eps = config.epsilon, .writes_16bit = true}) {
  check(config.kv_heads >= 1 && config.heads % config.kv_heads == 0,
        "llama: {} heads of queries are no multiple of {} of keys", config.heads, config.kv_heads);
  {
    const InitLater later;
    embed_tokens = embedding_child(config.vocabulary, config.width, config.padding);
    for (std::int64_t k = 0; k < config.layers; ++k)
      blocks_.push_back(std::make_unique<LlamaBlock>(config));
    if (!config.tied) lm_head = linear_child(config.width, config.vocabulary, false);
  }
  draw_initial(*this, [&](const std::string&) { return config.initializer_range; });
}

Llama::~Llama() = default;

ModelParts Llama::parts() const {
  return {.embeddings = {"embed_tokens"}, .blocks = "layers", .block_count = config_.layers};
}

void Llama::visit(const Visitor& visitor) {
  visitor("embed_tokens", embed_tokens);
  for (std::size_t k = 0; k < blocks_.size(); ++k)
    visitor("layers." + std::to_string(k), *blocks_[k]);
  visitor("norm", norm_);
  visitor("lm_head", lm_head);
}

Var Llama::hidden(const TokenInputs& inputs, KeyValueCache* cache) {
  check(!inputs.token_types, "llama: it has no token types");
  const Var positions = decoder_positions(inputs, cache, 0);
  Var x = (*embed_tokens)(inputs.ids);
  DecoderStep step{.masks = hidden_keys(inputs.mask),
                   .angles = rotary_angles(positions, frequencies_, x.dtype()),
                   .cache = cache};
  for (const auto& block : blocks_) {
    x = (*block)(x, step);
    ++step.layer;
  }
  return norm_(x);
}

Var Llama::output(const Var& hidden) {
  return lm_head ? (*lm_head)(hidden) : tied_output(*embed_tokens, hidden);
}

}  // namespace sotto::nn
