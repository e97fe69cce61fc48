#include "nn/models/gpt2.h"

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/indexing.h"
#include "nn/init.h"
#include "nn/models/decoder.h"
#include "nn/models/model_blocks.h"
#include "nn/without_init.h"

namespace sotto::nn {

namespace {

struct PublishedSize {
  const char* name;
  std::int64_t layers, width, heads;
};

// Radford et al. 2019, table 2, with the heads of the published files.
constexpr PublishedSize published[] = {{"gpt2", 12, 768, 12},
                                       {"gpt2-medium", 24, 1024, 16},
                                       {"gpt2-large", 36, 1280, 20},
                                       {"gpt2-xl", 48, 1600, 25},
                                       {"distilgpt2", 6, 768, 12}};

class Gpt2Block final : public DecoderBlock {
 public:
  Gpt2Block(const Gpt2Config& config, std::int64_t number)
      : ln_1_(config.width, {.eps = config.epsilon, .writes_16bit = true}),
        ln_2_(config.width, {.eps = config.epsilon, .writes_16bit = true}),
        c_attn_(linear_child(config.width, 3 * config.width)),
        attn_c_proj_(linear_child(config.width, config.width)),
        heads_(config.heads),
        residual_dropout_(config.residual_dropout),
        activation_(activation_of(config.activation, "activation_function")) {
    const std::int64_t inner = config.inner > 0 ? config.inner : 4 * config.width;
    c_fc_ = linear_child(config.width, inner);
    mlp_c_proj_ = linear_child(inner, config.width);
    const double per_head = static_cast<double>(config.width) / static_cast<double>(config.heads);
    attention_.dropout = config.attention_dropout;
    attention_.scale = (config.scale_weights ? 1 / std::sqrt(per_head) : 1) /
                       (config.scale_by_layer ? static_cast<double>(number) : 1);
  }

  Var forward(const Var& x, const DecoderStep& step) override {
    const std::vector<Var> qkv = chunk((*c_attn_)(ln_1_(x)), 2, 3);
    const Var mixed = decoder_attention(split_heads(qkv[0], heads_), split_heads(qkv[1], heads_),
                                        split_heads(qkv[2], heads_), step, attention_);
    const Var y = x + dropout((*attn_c_proj_)(merge_heads(mixed)), residual_dropout_);
    return y + dropout((*mlp_c_proj_)(activation_((*c_fc_)(ln_2_(y)))), residual_dropout_);
  }
  using DecoderBlock::forward;

  void visit(const Visitor& visitor) override {
    visitor("ln_1", ln_1_);
    visitor("attn.c_attn", c_attn_);
    visitor("attn.c_proj", attn_c_proj_);
    visitor("ln_2", ln_2_);
    visitor("mlp.c_fc", c_fc_);
    visitor("mlp.c_proj", mlp_c_proj_);
  }

 private:
  LayerNorm ln_1_, ln_2_;
  std::unique_ptr<Module> c_attn_, attn_c_proj_, c_fc_, mlp_c_proj_;
  std::int64_t heads_;
  AttentionOptions attention_;
  double residual_dropout_;
  std::function<Var(Var)> activation_;
};

}  // namespace

Gpt2Config gpt2_config(const std::string& name) {
  for (const PublishedSize& size : published) {
    if (name != size.name) continue;
    Gpt2Config config;
    config.layers = size.layers;
    config.width = size.width;
    config.heads = size.heads;
    return config;
  }
  fail(fmt::format("gpt2: no size is called {}", name));
}

Gpt2::Gpt2(const Gpt2Config& config)
    : ln_f(config.width, {.eps = config.epsilon, .writes_16bit = true}), config_(config) {
  check(config.heads >= 1 && config.width % config.heads == 0, "gpt2: {} heads of {} features",
        config.heads, config.width);
  {
    const InitLater later;
    wte = embedding_child(config.vocabulary, config.width);
    wpe = embedding_child(config.positions, config.width);
    for (std::int64_t k = 1; k <= config.layers; ++k)
      blocks_.push_back(std::make_unique<Gpt2Block>(config, k));
    if (!config.tied) lm_head = linear_child(config.width, config.vocabulary, false);
  }
  // Sums over the residual branches of all blocks have the deviation of one (Radford et al. 2019,
  // section 2.3).
  const double branches = std::sqrt(2 * static_cast<double>(config.layers));
  draw_initial(*this, [&](const std::string& name) {
    return config.initializer_range / (name.ends_with("c_proj.weight") ? branches : 1);
  });
}

Gpt2::~Gpt2() = default;

ModelParts Gpt2::parts() const {
  return {.embeddings = {"wte", "wpe"}, .blocks = "h", .block_count = config_.layers};
}

void Gpt2::visit(const Visitor& visitor) {
  visitor("wte", wte);
  visitor("wpe", wpe);
  for (std::size_t k = 0; k < blocks_.size(); ++k) visitor("h." + std::to_string(k), *blocks_[k]);
  visitor("ln_f", ln_f);
  visitor("lm_head", lm_head);
}

Var Gpt2::hidden(const TokenInputs& inputs, KeyValueCache* cache) {
  const Var positions = decoder_positions(inputs, cache, config_.positions);
  Var x = (*wte)(inputs.ids) + (*wpe)(positions);
  if (inputs.token_types) x = x + (*wte)(*inputs.token_types);
  x = dropout(x, config_.embedding_dropout);
  DecoderStep step{.masks = hidden_keys(inputs.mask), .cache = cache};
  for (const auto& block : blocks_) {
    x = (*block)(x, step);
    ++step.layer;
  }
  return ln_f(x);
}

Var Gpt2::output(const Var& hidden) {
  return lm_head ? (*lm_head)(hidden) : tied_output(*wte, hidden);
}

}  // namespace sotto::nn
