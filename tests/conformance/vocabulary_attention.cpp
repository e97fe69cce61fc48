#include <cmath>
#include <limits>

#include "sotto/kernels/compute.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

// An i64 mask hides scores where it is 1; any other is added.
Var hidden(const Var& scores, const Var& mask) {
  if (mask.dtype() != Dtype::i64) return add(scores, mask);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return where(mask, scores.tape().constant(full({}, -infinity, scores.dtype())), scores);
}

// Hides the keys s > t from query t; the `extra` last keys stay visible.
Var causal(const Var& scores, std::int64_t extra) {
  const std::int64_t queries = scores.value().size(-2);
  const std::int64_t keys = scores.value().size(-1);
  std::vector<std::int64_t> mask;
  for (std::int64_t i = 0; i < queries * keys; ++i) {
    mask.push_back(i % keys > i / keys && i % keys < keys - extra);
  }
  return hidden(scores, scores.tape().constant(Tensor::from(mask, {queries, keys})));
}

Var scaled_scores(const Var& q, const Var& k, double scale) {
  return affine(matmul(q, transpose(k, -1, -2)), scale, 0);
}

Var sdpa(const Call& call) {
  const Var& q = call["q"];
  const double root = std::sqrt(static_cast<double>(q.shape().back()));
  Var scores = scaled_scores(q, call["k"], call.number("scale", 1 / root));
  if (const auto mask = call.maybe("mask")) scores = hidden(scores, *mask);
  if (call.arg<bool>("is_causal")) scores = causal(scores, 0);
  return matmul(softmax(scores, -1), call["v"]);
}

// The weight and bias of query, key and value (part 0, 1 and 2).
Var projected(const Call& call, const char* operand, std::int64_t part) {
  const auto width = call.arg<std::int64_t>("embed_dim");
  const Var x = call.arg<bool>("batch_first") ? call[operand] : transpose(call[operand], 0, 1);
  std::optional<Var> bias = call.maybe("in_proj_bias");
  if (bias) bias = slice(*bias, 0, part * width, (part + 1) * width);
  const auto joined = call.maybe("in_proj_weight");
  const Var weight = joined ? slice(*joined, 0, part * width, (part + 1) * width)
                            : call[std::string(operand, 1) + "_proj_weight"];
  return linear(x, weight, bias);
}

// Keys or values with the rows that are appended for every sample.
Var extended(const Call& call, Var x, const char* bias) {
  if (const auto row = call.maybe(bias)) x = concat({x, *row}, 1);
  if (!call.arg<bool>("add_zero_attn")) return x;
  return concat({x, call.tape.constant(zeros({1, 1, x.shape()[2]}, x.dtype()))}, 1);
}

// [n, t, e] to [n, heads, t, e / heads]
Var heads_of(const Var& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  return permute(reshape(x, {shape[0], shape[1], heads, shape[2] / heads}), {0, 2, 1, 3});
}

// The masks do not know of the `extra` last keys.
Var masked_scores(const Call& call, Var scores, std::int64_t extra) {
  if (const auto mask = call.maybe("attn_mask")) scores = hidden(scores, pad(*mask, 1, 0, extra));
  if (call.arg<bool>("is_causal")) scores = causal(scores, extra);
  const auto mask = call.maybe("key_padding_mask");
  return mask ? hidden(scores, unsqueeze(unsqueeze(pad(*mask, 1, 0, extra), 1), 1)) : scores;
}

Var multihead(const Call& call) {
  const auto heads = call.arg<std::int64_t>("num_heads");
  const Var q = projected(call, "query", 0);
  const Var plain_k = projected(call, "key", 1);
  const Var k = extended(call, plain_k, "bias_k");
  const Var v = extended(call, projected(call, "value", 2), "bias_v");
  const std::int64_t width = q.shape()[2];
  const double root = std::sqrt(static_cast<double>(width / heads));
  const Var scores =
      masked_scores(call, scaled_scores(heads_of(q, heads), heads_of(k, heads), 1 / root),
                    k.shape()[1] - plain_k.shape()[1]);
  const Var mixed = permute(matmul(softmax(scores, -1), heads_of(v, heads)), {0, 2, 1, 3});
  const Var y =
      linear(reshape(mixed, q.shape()), call["out_proj.weight"], call.maybe("out_proj.bias"));
  return call.arg<bool>("batch_first") ? y : transpose(y, 0, 1);
}

}  // namespace

void add_attention(Vocabulary& vocabulary) {
  vocabulary["sdpa"] = single(sdpa);
  vocabulary["MultiheadAttention"] = single(multihead);
}

}  // namespace sotto::conformance
