// The block of transformers that read a whole input at once: BERT and its relatives, ViT.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nn/layers/norm_layers.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

// Names of a block's children, paths within the block. A child without a name is not there.
struct EncoderBlockNames {
  const char *query = nullptr, *key = nullptr, *value = nullptr;
  const char* query_key_value = nullptr;  // one layer in place of the three
  const char *projection = nullptr, *attention_norm = nullptr;
  const char *fc1 = nullptr, *fc2 = nullptr, *feed_forward_norm = nullptr;
  const char *attention_scale = nullptr, *feed_forward_scale = nullptr;  // of layer scale
};

struct EncoderBlockOptions {
  std::int64_t features = 0, heads = 1, hidden_features = 0;  // heads divides features
  EncoderBlockNames names = {};
  std::function<Var(Var)> activation = {};
  double norm_eps = 1e-12;
  bool norm_first = false;              // norms before the branches, not after the sums
  bool query_key_value_bias = true;     // of the three projections
  std::optional<double> layer_scale{};  // first value of factors [features] behind the branches
  double attention_dropout = 0;         // of attention weights
  double projection_dropout = 0;        // behind attention
  double feed_forward_dropout = 0;      // behind fc2
  double hidden_dropout = 0;            // behind the activation
  double drop_path = 0;                 // of a branch of a sample (Huang et al. 2016)
};

// Self-attention and a feed-forward network, each with a residual connection and a layer norm.
class EncoderBlock final : public Module {
 public:
  explicit EncoderBlock(const EncoderBlockOptions& options);
  // x [n, t, features]; `masks` hide keys (attention.h).
  Var forward(const Var& x, const std::vector<Var>& masks);
  Var forward(const Var& x) override { return forward(x, {}); }
  using Module::operator();
  // Calls forward() in the block's precision and reports the call to the ModuleHook.
  Var operator()(const Var& x, const std::vector<Var>& masks);
  void visit(const Visitor& visitor) override;

 private:
  Var attend(const Var& x, const std::vector<Var>& masks);
  Var feed_forward(const Var& x);

  EncoderBlockOptions options_;
  std::unique_ptr<Module> query_, key_, value_, query_key_value_, projection_, fc1_, fc2_;
  LayerNorm attention_norm_, feed_forward_norm_;
  std::unique_ptr<Parameter> attention_scale_, feed_forward_scale_;  // [features], or null
};

}  // namespace sotto::nn
