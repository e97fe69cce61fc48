// Operators of matrix products, look-ups and attention.
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

std::string transposed(Graph& g, const std::string& x, int rank) {
  return g.add("Transpose", {x}, {{"perm", exchanged_axes(rank, rank - 2, rank - 1)}});
}

// y[.., o] = sum_i x[.., i] w[o, i] + b[o]; w is [i, o] unless it is transposed.
std::string weighted(const Call& call) {
  Graph& g = call.graph;
  const std::int64_t flips = call.integer("transposed");
  Names inputs{call.in(0), call.in(1)};
  if (call.shape().rank() == 2) {
    if (call.inputs() > 2) inputs.push_back(call.in(2));
    return g.add("Gemm", inputs, {{"transB", flips}});
  }
  if (flips) inputs[1] = transposed(g, inputs[1], 2);
  const std::string y = g.add("MatMul", inputs);
  return call.inputs() > 2 ? g.add("Add", {y, call.in(2)}) : y;
}

std::string matmul(const Call& call) {
  if (call.has("transposed")) return weighted(call);
  return call.graph.add("MatMul", {call.in(0), call.in(1)});
}

std::string embedding(const Call& call) {
  return call.graph.add("Gather", {call.in(0), call.in(1)}, {{"axis", std::int64_t{0}}});
}

constexpr float hidden_score = -std::numeric_limits<float>::infinity();

// 0 where query t sees a key, -inf behind it, [queries, keys].
Tensor causal_scores(std::int64_t queries, std::int64_t keys, std::int64_t always_visible) {
  std::vector<float> scores;
  for (std::int64_t t = 0; t < queries; ++t) {
    for (std::int64_t s = 0; s < keys; ++s)
      scores.push_back(s > t + always_visible ? hidden_score : 0);
  }
  return Tensor::from(scores, {queries, keys});
}

std::string masked(const Call& call, std::string scores) {
  Graph& g = call.graph;
  for (const Var& mask : call.get<std::vector<Var>>("masks")) {
    const std::string m = call.name(mask);
    scores = is_float(mask.dtype())
                 ? g.add("Add", {scores, m})
                 : g.add("Where", {as_type(g, m, Dtype::boolean), g.number(hidden_score), scores});
  }
  if (!call.flag("causal")) return scores;
  const Tensor causal =
      causal_scores(call.shape(0)[call.shape(0).rank() - 2],
                    call.shape(1)[call.shape(1).rank() - 2], call.integer("always_visible"));
  return g.add("Add", {scores, g.constant(causal)});
}

// softmax(scale q k^T + masks) v; a query that sees no key gets zeros, as any mask may hide all.
std::string attention(const Call& call) {
  Graph& g = call.graph;
  const std::string k = transposed(g, call.in(1), call.shape(1).rank()),
                    q = g.add("Mul", {call.in(0), g.number(call.number("scale"))}),
                    scores = masked(call, g.add("MatMul", {q, k}));
  std::string weights = g.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  if (!call.get<std::vector<Var>>("masks").empty())
    weights =
        g.add("Where", {as_type(g, any_seen(g, scores), Dtype::boolean), weights, g.number(0)});
  return g.add("MatMul", {weights, call.in(2)});
}

// 1 for the keys that a mask [n, t] of tokens hides, [n, 1, 1, t].
std::string hidden_keys(const Call& call) {
  Graph& g = call.graph;
  const std::string hidden = g.add("Sub", {g.list({1}), call.in(0)});
  return g.add("Unsqueeze", {hidden, g.list({1, 2})});
}

// Cosines or sines of positions [n, t] times frequencies, [n, 1, t, frequencies]. The product is a
// double, and what is more than full turns a float: a large angle has too few digits in one.
std::string rotary_angles(const Call& call) {
  Graph& g = call.graph;
  const Tensor turn = full({}, 2 * std::numbers::pi, Dtype::f64);
  const std::string positions = g.add("Unsqueeze", {call.in(0), g.list({1, 3})}),
                    angles = g.add("Mul", {as_type(g, positions, Dtype::f64),
                                           g.constant(call.get<Tensor>("frequencies"))}),
                    rest = g.add("Mod", {angles, g.constant(turn)}, {{"fmod", std::int64_t{1}}});
  return g.add(call.flag("sine") ? "Sin" : "Cos", {as_type(g, rest, Dtype::f32)});
}

std::string rotary(const Call& call) {
  Graph& g = call.graph;
  const std::int64_t half = call.shape().back() / 2;
  const auto part = [&](std::int64_t begin) {
    return g.add("Slice", {call.in(0), g.list({begin}), g.list({begin + half}), g.list({-1})});
  };
  const auto mul = [&](const std::string& x, std::size_t angles) {
    return g.add("Mul", {x, call.in(angles)});
  };
  const std::string x1 = part(0), x2 = part(half);
  const std::string y1 = g.add("Sub", {mul(x1, 1), mul(x2, 2)}),
                    y2 = g.add("Add", {mul(x2, 1), mul(x1, 2)});
  return g.add("Concat", {y1, y2}, {{"axis", std::int64_t{-1}}});
}

}  // namespace

void add_products(Operators& all) {
  all["linear"] = weighted;
  all["matmul"] = matmul;
  all["embedding"] = embedding;
  all["attention"] = attention;
  all["hidden_keys"] = hidden_keys;
  all["rotary_angles"] = rotary_angles;
  all["rotary"] = rotary;
}

}  // namespace sotto::nn::onnx
