// The operations of random graphs that multiply matrices, look at windows or work on sequences.
#include "autograd/ops.h"
#include "autograd/ops/sequence/rotary.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/layers/attention_layers.h"
#include "nn/layers/embedding_bag.h"
#include "nn/layers/recurrent_layers.h"
#include "tests/support/fuzzed_graph.h"
#include "tests/support/random_blocks.h"

namespace sotto {

namespace {

std::optional<Var> maybe(GraphStep& s, const Shape& shape) {
  return s.one_in(2) ? std::optional(s.parameter(shape)) : std::nullopt;
}

Var linear_of(GraphStep& s) {
  const Var x = s.x();
  const std::int64_t out = s.size();
  const bool features = x.rank() > 0 && !(x.samples() == SampleAxis(x.rank() - 1));
  const Var w = s.weight({out, features ? x.shape().back() : 1});
  return linear(x, w, maybe(s, {out}));
}

BlockMatrix blocks(GraphStep& s, std::int64_t rows) {
  PublicRandom random(static_cast<std::uint64_t>(s.draw(0, 1 << 20)));
  return random_blocks(random, block_formats[s.draw(0, 2)], rows, 32);
}

Var quantized_of(GraphStep& s) {
  const Var x = s.x();
  const bool features = x.rank() > 0 && !(x.samples() == SampleAxis(x.rank() - 1));
  const std::int64_t inner = features ? x.shape().back() : 1, out = s.size();
  return quantized_linear(linear(x, s.parameter({32, inner})), blocks(s, out), maybe(s, {out}));
}

Var quantized_rows(GraphStep& s) {
  const std::int64_t rows = s.draw(1, 4);
  const Shape features = s.sizes(static_cast<int>(s.draw(0, 1)));
  const Var ids = s.ids(features, rows, static_cast<int>(s.draw(0, features.rank())));
  return linear(quantized_embedding(blocks(s, rows), ids), s.parameter({s.size(), 32}));
}

Var rotated(GraphStep& s) {
  const Var x = s.x(4), pairs = concat({x, x}, -1);
  const std::vector<double> frequencies(static_cast<std::size_t>(x.shape().back()), 0.5);
  return rotary(pairs, rotary_angles(s.ids({x.shape()[2]}, 9, 0), frequencies, x.dtype()));
}

Var multiplied(GraphStep& s) {
  const Var x = s.x(static_cast<int>(s.draw(2, 4)));
  const std::int64_t inner = x.shape().back(), rows = x.rank() > 2 ? x.value().size(-2) : 1;
  switch (s.draw(0, 4)) {
    case 0: return matmul(x, s.weight({inner, s.size()}));
    case 1: return matmul(x, transpose(x, -1, -2));
    case 2: return matmul(s.weight({s.size(), rows}), x);
    case 3: return matmul(transpose(x, 0, -2), s.shared());
    default: return matmul(x, s.input({inner, s.size()}));
  }
}

Var summed_products(GraphStep& s) {
  const Var x = s.x(3);
  const std::int64_t i = x.shape()[1], j = x.shape()[2];
  switch (s.draw(0, 4)) {
    case 0: return einsum("nij,njk->nik", {x, s.input({j, s.size()})});
    case 1: return einsum("nij,jk->nki", {x, s.weight({j, s.size()})});
    case 2: return einsum("nij,ij->n", {x, s.parameter({i, j})});
    case 3: return einsum("nij,nij->ni", {x, s.same(x)});
    default: return einsum("nij->nji", {x});
  }
}

Var looked_up(GraphStep& s) {
  const std::int64_t rows = s.draw(1, 4);
  const Shape features = s.sizes(static_cast<int>(s.draw(0, 2)));
  const auto padding = s.one_in(2) ? std::optional<std::int64_t>(0) : std::nullopt;
  const Var ids = s.ids(features, rows, static_cast<int>(s.draw(0, features.rank())));
  return embedding(s.weight({rows, s.size()}), ids, padding);
}

Var bagged(GraphStep& s) {
  const auto mode = static_cast<nn::BagMode>(s.draw(0, 2));
  const Var ids = s.ids({s.size()}, 4);
  return nn::embedding_bag(s.parameter({4, s.size()}), ids, std::nullopt, {.mode = mode});
}

// Images [n, c, spatial...].
Var images(GraphStep& s) { return s.x(static_cast<int>(s.draw(3, 4))); }

Var convolved(GraphStep& s) {
  const Var x = images(s);
  const std::int64_t c = x.shape()[1], groups = c == 2 && s.one_in(2) ? 2 : 1,
                     out = groups * s.draw(1, 2);
  Shape kernel{out, c / groups};
  for (int i = 2; i < x.rank(); ++i) kernel.push_back(s.draw(1, 3));
  const ConvOptions options{.stride = {s.draw(1, 2)},
                            .padding = {s.draw(0, 1)},
                            .dilation = {s.draw(1, 2)},
                            .groups = groups,
                            .mode = static_cast<PadMode>(s.draw(0, 3))};
  return conv(x, s.weight(kernel), maybe(s, {out}), options);
}

Var convolved_back(GraphStep& s) {
  const Var x = images(s);
  const std::int64_t out = s.draw(1, 2);
  Shape kernel{x.shape()[1], out};
  for (int i = 2; i < x.rank(); ++i) kernel.push_back(s.draw(1, 3));
  return conv_transpose(x, s.weight(kernel), maybe(s, {out}), {.stride = {s.draw(1, 2)}});
}

PoolOptions windows(GraphStep& s) {
  return {.kernel = {s.draw(1, 3)}, .stride = {s.draw(1, 2)}, .ceil_mode = s.one_in(2)};
}

Shape outputs(GraphStep& s, const Var& x) {
  Shape size;
  for (int i = 2; i < x.rank(); ++i) size.push_back(s.draw(1, 4));
  return size;
}

// Queries, keys and values of all samples, or shared by them; masks of each sample or of all.
Var attended(GraphStep& s) {
  const auto size = [&] { return s.one_in(6) ? 0 : s.draw(1, 4); };
  const std::int64_t heads = size(), a = size(), b = size(), d = s.draw(0, 3);
  const auto operand = [&](const Shape& shape) {
    return s.one_in(4) ? s.parameter(shape) : s.input(shape);
  };
  const Var q = operand({heads, a, d}), k = operand({heads, b, d}), v = operand({heads, b, 2});
  std::vector<Var> masks;
  if (s.one_in(3)) masks.push_back(s.hidden({1, 1, b}));
  if (s.one_in(4)) masks.push_back(s.input({1, a, b}));
  const AttentionOptions options{
      .causal = s.one_in(2), .always_visible = s.draw(0, 1), .dropout = s.one_in(2) ? 0.3 : 0.0};
  return attention(q, k, v, masks, options);
}

Var hidden_by_mask(GraphStep& s) {
  const Shape shape{s.size()};
  return where(score_mask(s.hidden(shape)), s.input(shape), s.input(shape));
}

Var attention_weights_of(GraphStep& s) {
  const std::int64_t b = s.size();
  const Var q = s.input({s.size(), 2});
  return attention_weights(q, s.one_in(2) ? s.input({b, 2}) : s.parameter({b, 2}),
                           {s.hidden({1, b})}, {.causal = s.one_in(2)});
}

nn::AttentionWeights attention_parameters(GraphStep& s) {
  nn::AttentionWeights w{.in_proj_weight = s.parameter({12, 4}), .in_proj_bias = maybe(s, {12})};
  w.bias_k = maybe(s, {1, 1, 4});
  if (w.bias_k) w.bias_v = s.parameter({1, 1, 4});
  return w;
}

template <Var (*F)(const Var&, const Var&, const Var&, const nn::AttentionWeights&,
                   const nn::MultiheadOptions&, const nn::AttentionMasks&)>
Var multihead(GraphStep& s) {
  const std::int64_t t = s.size();
  const Var x = s.input({t, 4});
  nn::AttentionMasks masks{.causal = s.one_in(2)};
  if (s.one_in(2)) masks.key_padding = s.hidden({t});
  return F(x, x, x, attention_parameters(s),
           {.heads = 2, .add_zero_attn = s.one_in(2), .dropout = s.one_in(2) ? 0.2 : 0.0}, masks);
}

RecurrentWeights recurrent_weights(GraphStep& s, Cell cell, std::int64_t in, bool projected) {
  const std::int64_t hidden = 2, out = projected ? 1 : hidden, gates = gate_count(cell) * hidden;
  RecurrentWeights w{.ih = s.weight({gates, in}), .hh = s.weight({gates, out})};
  w.bias_ih = maybe(s, {gates});
  w.bias_hh = maybe(s, {gates});
  if (projected) w.hr = s.parameter({out, hidden});
  return w;
}

Var all_results(GraphStep& s, const RecurrentResult& y) {
  s.also(y.h);
  if (y.c) s.also(*y.c);
  return y.output;
}

// A sequence of each sample, with lengths of their own or all of one.
Var sequence(GraphStep& s, std::int64_t steps) {
  const Cell cell = static_cast<Cell>(s.draw(0, 3));
  const std::int64_t t = s.draw(1, 4), in = s.size();
  const Var x = s.input({t, in});
  const RecurrentWeights w = recurrent_weights(s, cell, in, cell == Cell::lstm && s.one_in(2));
  SequenceOptions options{.reverse = s.one_in(2)};
  if (s.one_in(2)) options.lengths = s.ids({}, t + 1).value();
  return all_results(
      s, steps > 0 ? recurrent_in_segments(steps, cell, x, w, std::nullopt, std::nullopt, options)
                   : recurrent(cell, x, w, std::nullopt, std::nullopt, options));
}

Var layered(GraphStep& s) {
  const Cell cell = static_cast<Cell>(s.draw(0, 3));
  const Var x = s.input({3, 2});
  nn::RecurrentInputs inputs;
  if (s.one_in(2)) inputs.lengths = s.ids({}, 4).value();
  const std::vector<RecurrentWeights> weights{recurrent_weights(s, cell, 2, false),
                                              recurrent_weights(s, cell, 2, false)};
  const nn::RecurrentOutputs y = nn::run_layers(cell, x, weights, inputs, {.dropout = 0.2});
  return s.also(y.h), y.output;
}

nn::ScaleShift scaled(GraphStep& s, std::int64_t size) {
  return {.weight = maybe(s, {size}), .bias = maybe(s, {size})};
}

Var preluded(GraphStep& s) {
  const Var x = s.x(3);
  return nn::prelu(x, s.parameter({s.one_in(2) ? 1 : x.shape()[1]}));
}

Var bilinear_of(GraphStep& s) {
  const Var x = s.x(2), y = s.x(2);
  return nn::bilinear(x, y, s.parameter({2, x.shape()[1], y.shape()[1]}), maybe(s, {2}));
}

const FuzzedOp structures[] = {
    {"linear", linear_of},
    {"quantized_linear", quantized_of},
    {"quantized_embedding", quantized_rows},
    {"rotary", rotated},
    {"matmul", multiplied},
    {"einsum", summed_products},
    {"embedding", looked_up},
    {"embedding_bag", bagged},
    {"conv", convolved},
    {"conv_transpose", convolved_back},
    {"max_pool", [](GraphStep& s) { return max_pool(images(s), windows(s)); }},
    {"avg_pool", [](GraphStep& s) { return avg_pool(images(s), windows(s)); }},
    {"lp_pool", [](GraphStep& s) { return lp_pool(abs(images(s)), 2, windows(s)); }},
    {"adaptive_avg_pool",
     [](GraphStep& s) {
       const Var x = images(s);
       return adaptive_avg_pool(x, outputs(s, x));
     }},
    {"adaptive_max_pool",
     [](GraphStep& s) {
       const Var x = images(s);
       return adaptive_max_pool(x, outputs(s, x));
     }},
    {"upsample",
     [](GraphStep& s) {
       const Var x = images(s);
       return upsample(x, outputs(s, x), {static_cast<Interpolation>(s.draw(0, 1)), s.one_in(2)});
     }},
    {"pixel_shuffle",
     [](GraphStep& s) {
       return pixel_shuffle(s.input({4, 2, 1}), 2);
     }},
    {"pixel_unshuffle",
     [](GraphStep& s) {
       return pixel_unshuffle(s.input({1, 2, 4}), 2);
     }},
    {"attention", attended},
    {"attention_weights", attention_weights_of},
    {"score_mask", hidden_by_mask},
    {"multihead_attention", multihead<nn::multihead_attention>},
    {"multihead_attention_weights", multihead<nn::multihead_attention_weights>},
    {"add_sinusoidal_positions", [](GraphStep& s) { return nn::add_sinusoidal_positions(s.x(3)); }},
    {"recurrent", [](GraphStep& s) { return sequence(s, 0); }},
    {"recurrent_in_segments", [](GraphStep& s) { return sequence(s, s.draw(1, 3)); }},
    {"run_layers", layered},
    {"group_norm",
     [](GraphStep& s) {
       const Var x = images(s);
       return nn::group_norm(x, 1, scaled(s, x.shape()[1]), 0.1);
     }},
    {"instance_norm",
     [](GraphStep& s) {
       const Var x = images(s);
       return nn::instance_norm(x, scaled(s, x.shape()[1]), 0.1);
     }},
    {"layer_norm",
     [](GraphStep& s) {
       const Var x = s.x(3);
       return nn::layer_norm(x, {x.shape()[2]}, scaled(s, x.shape()[2]), 0.1);
     }},
    {"rms_norm",
     [](GraphStep& s) {
       const Var x = s.x(3);
       return nn::rms_norm(x, {x.shape()[2]}, scaled(s, x.shape()[2]), 0.1);
     }},
    {"local_response_norm",
     [](GraphStep& s) { return nn::local_response_norm(images(s), s.draw(1, 3)); }},
    {"prelu", preluded},
    {"bilinear", bilinear_of},
    {"standardized_weight",
     [](GraphStep& s) {
       const Var w = s.parameter({2, s.draw(1, 3)});
       if (s.draw(0, 1) == 0) return nn::standardized_weight(w);
       return nn::standardized_weight(w, 1e-5, s.parameter({2, 1}));
     }},
    {"normalized_weight", [](GraphStep& s) {
       return nn::normalized_weight(s.parameter({2, s.size()}), s.parameter({2}));
     }}};

}  // namespace

std::span<const FuzzedOp> fuzzed_structures() { return structures; }

}  // namespace sotto
