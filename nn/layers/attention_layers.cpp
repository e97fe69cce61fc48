#include "nn/layers/attention_layers.h"

#include <cmath>
#include <functional>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"

namespace sotto::nn {

namespace {

struct Projections {
  Var q, k, v;
};

// Projects x by `own`, or by third number `part` of the joint weight.
Var projected(const Var& x, const AttentionWeights& w, int part, const std::optional<Var>& own) {
  const Var& any = w.in_proj_weight ? *w.in_proj_weight : *w.q_proj_weight;
  const std::int64_t width = w.in_proj_weight ? any.shape()[0] / 3 : any.shape()[0];
  const Var weight = w.in_proj_weight ? slice(any, 0, part * width, (part + 1) * width) : *own;
  std::optional<Var> bias;
  if (w.in_proj_bias) bias = slice(*w.in_proj_bias, 0, part * width, (part + 1) * width);
  return linear(x, weight, bias);
}

// Self-attention projects once: the joint weight then has one factored gradient, not three slices.
Projections projections(const Var& query, const Var& key, const Var& value,
                        const AttentionWeights& w) {
  check(w.in_proj_weight || (w.q_proj_weight && w.k_proj_weight && w.v_proj_weight),
        "multihead_attention: no projections");
  if (!w.in_proj_weight || !query.is(key) || !query.is(value)) {
    return {projected(query, w, 0, w.q_proj_weight), projected(key, w, 1, w.k_proj_weight),
            projected(value, w, 2, w.v_proj_weight)};
  }
  const Var all = linear(query, *w.in_proj_weight, w.in_proj_bias);
  const std::int64_t width = all.shape().back() / 3;
  const std::vector<Var> parts = split(all, -1, {width, width, width});
  return {parts[0], parts[1], parts[2]};
}

// Prepends to x, along the positions, the key or value rows that bias_k, bias_v and add_zero_attn
// add.
Var extended(const Var& x, const std::optional<Var>& row, bool zero) {
  // A constant without the sample axis has as many rows as x; one row is broadcast to all samples.
  const std::int64_t rows = x.samples() == SampleAxis(0) ? 1 : x.shape()[0], width = x.shape()[2];
  std::vector<Var> parts;
  if (row) parts.push_back(expand(*row, {rows, 1, width}));
  if (zero)
    parts.push_back(x.tape().constant(zeros({rows, 1, width}, x.dtype(), x.value().device())));
  parts.push_back(x);
  return parts.size() == 1 ? x : concat(parts, 1);
}

// [n, t, e] to [n, heads, t, e / heads]
Var heads_of(const Var& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  check(heads >= 1 && shape[2] % heads == 0, "multihead_attention: {} heads of {} features", heads,
        shape[2]);
  return permute(reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

// The masks as attention() takes them, extended by `more` first keys that no mask hides.
std::vector<Var> all_masks(const AttentionMasks& masks, std::int64_t more) {
  std::vector<Var> all;
  if (masks.attention) all.push_back(pad(score_mask(*masks.attention), -1, more, 0));
  if (!masks.key_padding) return all;
  const Var& padding = *masks.key_padding;
  check(!is_float(padding.dtype()),
        "multihead_attention: key_padding is {}; what hides keys is boolean or integer, and a term "
        "of the scores is the mask `attention`",
        name(padding.dtype()));
  all.push_back(unsqueeze(unsqueeze(pad(score_mask(padding), 1, more, 0), 1), 1));
  return all;
}

struct Prepared {
  Var q, k, v;
  std::vector<Var> masks;
  AttentionOptions options;
};

Prepared prepared(const Projections& p, const AttentionWeights& w, const MultiheadOptions& options,
                  const AttentionMasks& masks) {
  const Var k = extended(p.k, w.bias_k, options.add_zero_attn),
            v = extended(p.v, w.bias_v, options.add_zero_attn);
  const std::int64_t more = k.shape()[1] - p.k.shape()[1];
  return {
      heads_of(p.q, options.heads),
      heads_of(k, options.heads),
      heads_of(v, options.heads),
      all_masks(masks, more),
      {.causal = masks.causal, .always_visible = more, .scale = {}, .dropout = options.dropout}};
}

Var feed_forward(const Var& x, Linear& first, Linear& second, const TransformerOptions& options) {
  const Var hidden = first(x);
  const Var active =
      options.activation == FeedForwardActivation::relu ? relu(hidden) : gelu(hidden);
  return dropout(second(dropout(active, options.dropout)), options.dropout);
}

// Adds a residual branch, with the norm before it or after the sum.
Var with_residual(const Var& x, LayerNorm& norm, bool norm_first,
                  const std::function<Var(const Var&)>& branch) {
  return norm_first ? x + branch(norm(x)) : norm(x + branch(x));
}

MultiheadAttentionOptions attention_options(const TransformerOptions& options) {
  return {.dropout = options.dropout, .batch_first = options.batch_first};
}

}  // namespace

Var multihead_attention(const Var& query, const Var& key, const Var& value,
                        const AttentionWeights& w, const MultiheadOptions& options,
                        const AttentionMasks& masks) {
  const Prepared p = prepared(projections(query, key, value, w), w, options, masks);
  const Var mixed = permute(attention(p.q, p.k, p.v, p.masks, p.options), {0, 2, 1, 3});
  const Var y =
      reshape(mixed, {query.shape()[0], query.shape()[1], mixed.shape()[2] * mixed.shape()[3]});
  return w.out_proj_weight ? linear(y, *w.out_proj_weight, w.out_proj_bias) : y;
}

Var multihead_attention_weights(const Var& query, const Var& key, const Var& value,
                                const AttentionWeights& w, const MultiheadOptions& options,
                                const AttentionMasks& masks) {
  const Prepared p = prepared(projections(query, key, value, w), w, options, masks);
  const Var weights = attention_weights(p.q, p.k, p.masks, p.options);
  const std::int64_t more = p.options.always_visible, keys = weights.shape().back();
  return more == 0 ? weights
                   : concat({slice(weights, -1, more, keys), slice(weights, -1, 0, more)}, -1);
}

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                                       const MultiheadAttentionOptions& options)
    : out_proj(embed_dim, embed_dim, {.bias = options.bias}),
      options_{
          .heads = num_heads, .add_zero_attn = options.add_zero_attn, .dropout = options.dropout},
      batch_first_(options.batch_first) {
  check(num_heads >= 1 && embed_dim % num_heads == 0, "MultiheadAttention: {} heads of {} features",
        num_heads, embed_dim);
  const auto weight = [](std::int64_t out, std::int64_t in) {
    return std::make_unique<Parameter>(xavier_uniform({out, in}));
  };
  const std::int64_t kdim = options.kdim > 0 ? options.kdim : embed_dim,
                     vdim = options.vdim > 0 ? options.vdim : embed_dim;
  if (kdim == embed_dim && vdim == embed_dim) {
    in_proj_weight = weight(3 * embed_dim, embed_dim);
  } else {
    q_proj_weight = weight(embed_dim, embed_dim);
    k_proj_weight = weight(embed_dim, kdim);
    v_proj_weight = weight(embed_dim, vdim);
  }
  if (options.bias) {
    in_proj_bias = std::make_unique<Parameter>(zeros({3 * embed_dim}));
    out_proj.bias->value = zeros({embed_dim});
  }
  if (options.add_bias_kv) {
    const double deviation = 1 / std::sqrt(static_cast<double>(embed_dim));
    bias_k = std::make_unique<Parameter>(random_normal({1, 1, embed_dim}, 0, deviation));
    bias_v = std::make_unique<Parameter>(random_normal({1, 1, embed_dim}, 0, deviation));
  }
}

AttentionWeights MultiheadAttention::values(Tape& tape) {
  const auto use = [&tape](const std::unique_ptr<Parameter>& p) {
    return p ? std::optional(tape.use(*p)) : std::nullopt;
  };
  return {use(in_proj_weight), use(q_proj_weight),   use(k_proj_weight),
          use(v_proj_weight),  use(in_proj_bias),    use(bias_k),
          use(bias_v),         use(out_proj.weight), use(out_proj.bias)};
}

std::array<Var, 3> MultiheadAttention::samples_first(const Var& query, const Var& key,
                                                     const Var& value) const {
  const auto first = [this](const Var& x) {
    check(x.rank() == 3, "MultiheadAttention: input {} is not samples, positions and features",
          x.shape());
    return batch_first_ ? x : transpose(x, 0, 1);
  };
  const Var q = first(query), k = key.is(query) ? q : first(key);
  return {q, k, value.is(query) ? q : value.is(key) ? k : first(value)};
}

Var MultiheadAttention::forward(const Var& query, const Var& key, const Var& value,
                                const AttentionMasks& masks) {
  const auto [q, k, v] = samples_first(query, key, value);
  const Var y = multihead_attention(q, k, v, values(query.tape()), options_, masks);
  return batch_first_ ? y : transpose(y, 0, 1);
}

Var MultiheadAttention::weights(const Var& query, const Var& key, const Var& value,
                                const AttentionMasks& masks, bool average) {
  const auto [q, k, v] = samples_first(query, key, value);
  const Var w = multihead_attention_weights(q, k, v, values(query.tape()), options_, masks);
  return average ? mean(w, {1}) : w;
}

void MultiheadAttention::visit(const Visitor& visitor) {
  visitor("in_proj_weight", in_proj_weight);
  visitor("q_proj_weight", q_proj_weight);
  visitor("k_proj_weight", k_proj_weight);
  visitor("v_proj_weight", v_proj_weight);
  visitor("in_proj_bias", in_proj_bias);
  visitor("bias_k", bias_k);
  visitor("bias_v", bias_v);
  visitor("out_proj", out_proj);
}

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerOptions& options)
    : self_attn(d_model, nhead, attention_options(options)),
      linear1(d_model, options.dim_feedforward),
      linear2(options.dim_feedforward, d_model),
      norm1(d_model, {.eps = options.layer_norm_eps, .writes_16bit = options.norm_first}),
      norm2(d_model, {.eps = options.layer_norm_eps, .writes_16bit = options.norm_first}),
      options_(options) {}

Var TransformerEncoderLayer::forward(const Var& x, const AttentionMasks& masks) {
  const Var y = with_residual(x, norm1, options_.norm_first, [&](const Var& z) {
    return dropout(self_attn.forward(z, z, z, masks), options_.dropout);
  });
  return with_residual(y, norm2, options_.norm_first,
                       [&](const Var& z) { return feed_forward(z, linear1, linear2, options_); });
}

void TransformerEncoderLayer::visit(const Visitor& visitor) {
  visitor("self_attn", self_attn);
  visitor("linear1", linear1);
  visitor("linear2", linear2);
  visitor("norm1", norm1);
  visitor("norm2", norm2);
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerOptions& options)
    : self_attn(d_model, nhead, attention_options(options)),
      multihead_attn(d_model, nhead, attention_options(options)),
      linear1(d_model, options.dim_feedforward),
      linear2(options.dim_feedforward, d_model),
      norm1(d_model, {.eps = options.layer_norm_eps, .writes_16bit = options.norm_first}),
      norm2(d_model, {.eps = options.layer_norm_eps, .writes_16bit = options.norm_first}),
      norm3(d_model, {.eps = options.layer_norm_eps, .writes_16bit = options.norm_first}),
      options_(options) {}

Var TransformerDecoderLayer::forward(const Var& x, const Var& memory, const AttentionMasks& masks,
                                     const AttentionMasks& memory_masks) {
  const Var own = with_residual(x, norm1, options_.norm_first, [&](const Var& z) {
    return dropout(self_attn.forward(z, z, z, masks), options_.dropout);
  });
  const Var other = with_residual(own, norm2, options_.norm_first, [&](const Var& z) {
    return dropout(multihead_attn.forward(z, memory, memory, memory_masks), options_.dropout);
  });
  return with_residual(other, norm3, options_.norm_first,
                       [&](const Var& z) { return feed_forward(z, linear1, linear2, options_); });
}

void TransformerDecoderLayer::visit(const Visitor& visitor) {
  visitor("self_attn", self_attn);
  visitor("multihead_attn", multihead_attn);
  visitor("linear1", linear1);
  visitor("linear2", linear2);
  visitor("norm1", norm1);
  visitor("norm2", norm2);
  visitor("norm3", norm3);
}

PositionalEmbedding::PositionalEmbedding(std::int64_t positions, std::int64_t features) {
  check(positions >= 1 && features >= 1, "PositionalEmbedding: {} positions of {}", positions,
        features);
  constexpr double deviation = 0.02;
  weight = std::make_unique<Parameter>(random_normal({positions, features}, 0, deviation));
}

Var PositionalEmbedding::forward(const Var& x) {
  const Shape& table = weight->value.shape();
  check(x.rank() == 3 && x.shape()[1] <= table[0] && x.shape()[2] == table[1],
        "PositionalEmbedding: input {} for a table {}", x.shape(), table);
  return to_f32(x) + slice(x.tape().use(*weight), 0, 0, x.shape()[1]);
}

Var add_sinusoidal_positions(const Var& x) {
  check(x.rank() == 3, "add_sinusoidal_positions: input {} is not [n, t, features]", x.shape());
  constexpr double longest = 10000;
  const std::int64_t t = x.shape()[1], width = x.shape()[2];
  std::vector<double> values;
  for (std::int64_t position = 0; position < t; ++position) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double angle =
          static_cast<double>(position) /
          std::pow(longest, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
      values.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  const Var wide = to_f32(x);
  return wide + x.tape().constant(to_dtype(Tensor::from(values, {t, width}), wide.dtype()));
}

}  // namespace sotto::nn
