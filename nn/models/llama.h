// Decoders in the style of Llama (Touvron et al. 2023), with the parameter names of Hugging Face's
// transformers: Llama, TinyLlama, SmolLM, Mistral without a sliding window, Qwen2.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/layers/norm_layers.h"
#include "nn/models/language_model.h"

namespace sotto::nn {

class DecoderBlock;

// Frequencies of rotary positions: base^(-2j/e), j = 0 .. e/2 - 1, scaled.
struct RotaryConfig {
  // `linear` divides all frequencies by the factor; `llama3` those of long wavelengths alone (Llama
  // 3.1); `divided` each by a number of its own.
  enum class Scaling { none, linear, llama3, divided };
  double base = 10000;                // of the powers
  Scaling scaling = Scaling::none;    // of the frequencies
  double factor = 1;                  // of the scaling
  double low = 1;                     // of llama3: wavelengths above original / low are long
  double high = 4;                    // of llama3: those below original / high are short
  double original = 8192;             // of llama3: the positions of the first training
  std::vector<double> divisors = {};  // of divided: [e / 2]
};

// The frequencies for heads of e features. Throws std::invalid_argument unless e is even, and for
// another number of divisors than frequencies.
std::vector<double> rotary_frequencies(const RotaryConfig& config, std::int64_t e);

// The fields of config.json that change the computation; the defaults are those of the package.
struct LlamaConfig {
  std::int64_t vocabulary = 32000;  // tokens
  std::int64_t width = 4096;        // features of a token
  std::int64_t inner = 11008;       // hidden units of the MLP
  std::int64_t layers = 32;         // blocks
  std::int64_t heads = 32;          // of queries
  std::int64_t kv_heads = 32;       // of keys and values
  std::int64_t head_width = 128;    // of queries, keys and values; not always width / heads
  std::int64_t positions = 2048;    // the most tokens of a row
  std::string activation = "silu";  // by its name in config.json
  double epsilon = 1e-6;            // of the norms
  RotaryConfig rotary = {};         // of positions
  bool qkv_bias = false;            // queries, keys and values have biases
  bool output_bias = false;         // the layer behind attention has one
  bool mlp_bias = false;            // the layers of the MLP have biases
  bool tied = false;                // the output layer is the table of tokens
  std::optional<std::int64_t> padding = {};  // a token whose row gets no gradient when looked up
  double attention_dropout = 0;              // of attention weights
  double initializer_range = 0.02;           // standard deviation of initial weights
};

class Llama final : public LanguageModel {
 public:
  // With normal initial weights. Throws std::invalid_argument for sizes that do not fit each other.
  explicit Llama(const LlamaConfig& config);
  ~Llama() override;
  ModelParts parts() const override;
  void visit(const Visitor& visitor) override;
  std::int64_t max_tokens() const override { return config_.positions; }

  std::unique_ptr<Module> embed_tokens;  // the table of tokens
  std::unique_ptr<Module> lm_head;       // null if tied

 protected:
  Var hidden(const TokenInputs& inputs, KeyValueCache* cache) override;
  Var output(const Var& hidden) override;

 private:
  LlamaConfig config_;
  std::vector<double> frequencies_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  RMSNorm norm_;
};

}  // namespace sotto::nn
