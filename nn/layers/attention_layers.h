// Multi-head attention and the layers of transformers (Vaswani et al. 2017), with PyTorch's
// parameter names and layouts.
#pragma once

#include <array>
#include <optional>

#include "autograd/ops/sequence/attention.h"
#include "nn/layers/dense_layers.h"
#include "nn/layers/norm_layers.h"

namespace sotto::nn {

// Parameters of multi-head attention as values; e is embed_dim. Absent ones are not used.
struct AttentionWeights {
  std::optional<Var> in_proj_weight = {};       // [3 e, e]: query, key, value; or the next three
  std::optional<Var> q_proj_weight = {};        // [e, e]
  std::optional<Var> k_proj_weight = {};        // [e, kdim]
  std::optional<Var> v_proj_weight = {};        // [e, vdim]
  std::optional<Var> in_proj_bias = {};         // [3 e]
  std::optional<Var> bias_k = {}, bias_v = {};  // [1, 1, e], one more key and value per sample
  std::optional<Var> out_proj_weight = {}, out_proj_bias = {};  // [e, e], [e]
};

// The keys that are hidden from a query.
struct AttentionMasks {
  // [n, keys], boolean or integer: hides the key from all queries of the sample where it is not 0.
  // Floating-point masks are refused: 1 would be a term and hide nothing.
  std::optional<Var> key_padding = {};
  // [queries, keys], shared by all samples, or [n, heads, queries, keys]. A boolean or integer mask
  // hides the key where it is not 0; a floating-point one is added to the scores.
  std::optional<Var> attention = {};
  // Query t attends only to the keys s <= t.
  bool causal = false;
};

struct MultiheadOptions {
  std::int64_t heads = 1;      // divides e
  bool add_zero_attn = false;  // one key and value of zeros more
  double dropout = 0;          // of attention weights
};

// Attention of query [n, a, e] to key [n, b, kdim] and value [n, b, vdim]; returns [n, a, e]. The
// keys that bias_k and add_zero_attn add are visible to all queries, whatever the masks.
Var multihead_attention(const Var& query, const Var& key, const Var& value,
                        const AttentionWeights& weights, const MultiheadOptions& options,
                        const AttentionMasks& masks = {});
// The attention weights of each head, [n, heads, a, b + added]; added keys come last. For
// inspection: they are computed separately from multihead_attention().
Var multihead_attention_weights(const Var& query, const Var& key, const Var& value,
                                const AttentionWeights& weights, const MultiheadOptions& options,
                                const AttentionMasks& masks = {});

struct MultiheadAttentionOptions {
  double dropout = 0;          // of attention weights
  bool bias = true;            // of the projections
  bool add_bias_kv = false;    // one learned key and value more
  bool add_zero_attn = false;  // one key and value of zeros more
  std::int64_t kdim = 0;       // 0: embed_dim
  std::int64_t vdim = 0;       // 0: embed_dim
  bool batch_first = false;    // samples are axis 0, not 1
};

// Multi-head attention with its parameters.
//
//   MultiheadAttention layer(64, 4, {.batch_first = true});
//   const Var y = layer(x);  // [n, t, 64]
class MultiheadAttention final : public Module {
 public:
  // Throws std::invalid_argument unless num_heads divides embed_dim.
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                     const MultiheadAttentionOptions& options = {});
  Var forward(const Var& x) override { return forward(x, x, x); }
  // multihead_attention() with the layer's parameters; samples are axis 1 unless batch_first.
  Var forward(const Var& query, const Var& key, const Var& value, const AttentionMasks& masks = {});
  // The attention weights [n, heads, a, b], or [n, a, b] averaged over the heads.
  Var weights(const Var& query, const Var& key, const Var& value, const AttentionMasks& masks = {},
              bool average = true);
  void visit(const Visitor& visitor) override;

  // Shapes as in AttentionWeights; those that are not used are null.
  std::unique_ptr<Parameter> in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;
  std::unique_ptr<Parameter> in_proj_bias, bias_k, bias_v;  // as in AttentionWeights, or null
  Linear out_proj;                                          // from the heads' results to embed_dim

 private:
  AttentionWeights values(Tape& tape);
  std::array<Var, 3> samples_first(const Var& query, const Var& key, const Var& value) const;

  MultiheadOptions options_;
  bool batch_first_;  // samples are axis 0, not 1
};

// The nonlinearity of a transformer layer's feed-forward network.
enum class FeedForwardActivation { relu, gelu };

// Options of transformer layers, with PyTorch's names.
struct TransformerOptions {
  std::int64_t dim_feedforward = 2048;  // hidden units
  double dropout = 0.1;                 // behind attention and feed-forward
  FeedForwardActivation activation = FeedForwardActivation::relu;  // of the feed-forward network
  double layer_norm_eps = 1e-5;                                    // of both norms
  bool batch_first = false;                                        // samples are axis 0, not 1
  bool norm_first = false;  // norms before the blocks, not after
};

// Self-attention and a feed-forward network, each with a residual connection and a layer norm.
class TransformerEncoderLayer final : public Module {
 public:
  // Features and heads; nhead divides d_model.
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                          const TransformerOptions& options = {});
  Var forward(const Var& x) override { return forward(x, {}); }
  // x [t, n, d_model], or [n, t, d_model] if batch_first.
  Var forward(const Var& x, const AttentionMasks& masks);
  void visit(const Visitor& visitor) override;

  MultiheadAttention self_attn;  // of x to itself
  Linear linear1, linear2;       // d_model to dim_feedforward, and back
  LayerNorm norm1, norm2;        // behind attention, and behind feed-forward

 private:
  TransformerOptions options_;
};

// Self-attention, attention to a memory, and a feed-forward network, each with a residual
// connection and a layer norm.
class TransformerDecoderLayer final : public Module {
 public:
  // Features and heads; nhead divides d_model.
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                          const TransformerOptions& options = {});
  Var forward(const Var& x) override { return forward(x, x); }
  // x [t, n, d_model], memory [s, n, d_model]; samples first if batch_first.
  Var forward(const Var& x, const Var& memory, const AttentionMasks& masks = {},
              const AttentionMasks& memory_masks = {});
  void visit(const Visitor& visitor) override;

  MultiheadAttention self_attn, multihead_attn;  // of x to itself, and to the memory
  Linear linear1, linear2;                       // d_model to dim_feedforward, and back
  LayerNorm norm1, norm2, norm3;                 // behind each of the three

 private:
  TransformerOptions options_;
};

// x plus a learned vector for each position: weight [positions, features], x [n, t, features] with
// t <= positions. Initially normal with standard deviation 0.02.
class PositionalEmbedding final : public Module {
 public:
  // Both numbers are >= 1. The result is f32 where x has 16 bits: residual blocks add to it.
  PositionalEmbedding(std::int64_t positions, std::int64_t features);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override { visitor("weight", weight); }

  std::unique_ptr<Parameter> weight;  // [positions, features]
};

// x [n, t, features] plus sines and cosines of the position, with wavelengths from 2 pi to 10000 2
// pi; f32 where x has 16 bits. No parameters.
Var add_sinusoidal_positions(const Var& x);

}  // namespace sotto::nn
