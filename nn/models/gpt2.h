// GPT-2 (Radford et al. 2019), with the parameter names of Hugging Face's transformers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/layers/norm_layers.h"
#include "nn/models/language_model.h"

namespace sotto::nn {

class DecoderBlock;

// The fields of config.json that change the computation; the defaults are those of the package.
struct Gpt2Config {
  std::int64_t vocabulary = 50257;      // tokens
  std::int64_t positions = 1024;        // the most tokens of a row
  std::int64_t width = 768;             // features of a token
  std::int64_t layers = 12;             // blocks
  std::int64_t heads = 12;              // of attention
  std::int64_t inner = 0;               // hidden units of the MLP; 0: 4 width
  std::string activation = "gelu_new";  // by its name in config.json
  double epsilon = 1e-5;                // of the layer norms
  bool scale_weights = true;            // scores are divided by sqrt(width / heads)
  bool scale_by_layer = false;          // and by the block's number, from 1
  bool tied = true;                     // the output layer is the table of tokens
  double attention_dropout = 0.1;       // of attention weights
  double embedding_dropout = 0.1;       // of the sum of tables
  double residual_dropout = 0.1;        // of both branches of a block
  double initializer_range = 0.02;      // standard deviation of initial weights
};

// The published sizes: "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2". Throws
// std::invalid_argument for another name.
Gpt2Config gpt2_config(const std::string& name);

class Gpt2 final : public LanguageModel {
 public:
  // With initial weights as the package draws them. Throws std::invalid_argument for sizes that do
  // not fit each other.
  // TokenInputs::token_types are further tokens, whose vectors are added.
  explicit Gpt2(const Gpt2Config& config);
  ~Gpt2() override;
  ModelParts parts() const override;
  void visit(const Visitor& visitor) override;
  std::int64_t max_tokens() const override { return config_.positions; }

  std::unique_ptr<Module> wte, wpe;  // tables of tokens and positions
  std::unique_ptr<Module> lm_head;   // null if tied
  LayerNorm ln_f;                    // the last norm

 protected:
  Var hidden(const TokenInputs& inputs, KeyValueCache* cache) override;
  Var output(const Var& hidden) override;

 private:
  Gpt2Config config_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
};

}  // namespace sotto::nn
