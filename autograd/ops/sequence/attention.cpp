#include "autograd/ops/sequence/attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/sequence/fused_attention.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "core/random/philox.h"
#include "kernels/backend.h"
#include "kernels/host_device/dropout_counter.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op attention_op("attention",
                      {.captures = Op::Captures::shared, .precision = Op::Precision::lower});

// The number of scores in a block: on the CPU they stay in a cache; on a GPU a block keeps one
// launch busy for longer than the launch takes.
std::int64_t block_scores(Device device) { return std::int64_t{1} << (device == cpu ? 19 : 23); }

// An attention problem with merged leading axes: q [m, a, d], k [m, b, d], v [m, b, e], masks [m or
// 1, a or 1, b or 1].
struct Attention {
  Tensor q, k, v;
  std::vector<Tensor> masks;  // as given, until with_operands() merges their leading axes
  AttentionOptions options;
  double scale = 1;
  PhiloxKey key;  // key of dropout
  std::vector<std::uint64_t> rows =
      {};             // rows of the samples for dropout; one if all operands are shared
  Shape sample = {};  // shape of one sample's weights, for dropout

  // The type of factors. Scores have its accumulation type; weights and the gradients of scores are
  // rounded to it (docs/appendix/memory-notes.md#mixed-precision).
  Dtype factors() const { return q.dtype(); }
  std::int64_t slices() const { return q.size(0); }
  std::int64_t queries() const { return q.size(1); }
  std::int64_t keys() const { return k.size(1); }
};

// Slices n0 .. n1 - 1 and queries r0 .. r1 - 1; several slices only with all of their queries.
struct ScoreRange {
  std::int64_t n0, n1, r0, r1;
};

// Divides the scores into blocks. If `sums`, queries are summed over, and on the CPU a block ends
// where a chain of the products ends (product_chain): the division, which depends on the number of
// keys, then does not change bits. A block of very many keys may be larger than the limit.
template <class F>
void for_each_block(const Attention& s, bool sums, F&& f) {
  const std::int64_t max = block_scores(s.q.device());
  const std::int64_t one = std::max<std::int64_t>(1, s.queries() * s.keys());
  const std::int64_t slices = std::max<std::int64_t>(1, max / one);
  const std::int64_t unit = sums && s.q.device() == cpu ? product_chain : 1;
  const std::int64_t fit = max / std::max<std::int64_t>(1, s.keys());
  const std::int64_t rows = std::max<std::int64_t>(1, fit / unit) * unit;
  if (one <= max) {
    for (std::int64_t n = 0; n < s.slices(); n += slices)
      f(ScoreRange{n, std::min(n + slices, s.slices()), 0, s.queries()});
    return;
  }
  for (std::int64_t n = 0; n < s.slices(); ++n) {
    for (std::int64_t r = 0; r < s.queries(); r += rows)
      f(ScoreRange{n, n + 1, r, std::min(r + rows, s.queries())});
  }
}

Tensor part(const Tensor& x, const ScoreRange& b) {
  return x.slice(0, b.n0, b.n1).slice(1, b.r0, b.r1);
}

// Blocks of the queries (or of a tensor shaped like them) and of the keys or values, as factors.
Tensor queries_of(const Attention& s, const Tensor& x, const ScoreRange& b) {
  return to_dtype(part(x, b), s.factors());
}
Tensor keys_of(const Attention& s, const Tensor& x, const ScoreRange& b) {
  return to_dtype(x.slice(0, b.n0, b.n1), s.factors());
}

// The block of a mask, whose first two axes may have size 1.
Tensor mask_part(const Tensor& mask, const ScoreRange& b) {
  const Tensor slices = mask.size(0) == 1 ? mask : mask.slice(0, b.n0, b.n1);
  return mask.size(1) == 1 ? slices : slices.slice(1, b.r0, b.r1);
}

// The AttentionMask of a block, without its masks. Dropout divides weights by 1 - dropout, so their
// total is larger by that factor.
AttentionMask rule_of(const Attention& s, const ScoreRange& b) {
  return {.scale = s.scale,
          .total = 1 / (1 - s.options.dropout),
          .causal = s.options.causal,
          .first_query = b.r0,
          .always_visible = s.options.always_visible,
          .masks = {}};
}

Tensor weights_of(const Attention& s, const ScoreRange& b) {
  const Tensor x = gemm_f32(queries_of(s, s.q, b), keys_of(s, s.k, b).transpose(1, 2));
  const Tensor y = x.dtype() == s.factors() ? x : Tensor::empty(x.shape(), s.factors(), x.device());
  std::vector<Tensor> masks;
  std::vector<View> views;
  for (const Tensor& mask : s.masks) {
    const Tensor m = mask_part(mask, b).to(x.device());
    masks.push_back(m.dtype() == Dtype::i64 ? m : to_dtype(m, x.dtype()));
    views.push_back(masks.back().expand(x.shape()).view());
  }
  AttentionMask rule = rule_of(s, b);
  rule.masks = views;
  backend(x.device()).masked_softmax(rule, x.view(), y.view());
  return y;
}

Shape leading(const Shape& shape) {
  Shape batch_dims = shape;
  batch_dims.erase(batch_dims.rank() - 1);
  batch_dims.erase(batch_dims.rank() - 1);
  return batch_dims;
}

// The dropout mask of a block; undefined without dropout. The mask does not depend on the blocks:
// it is that of one tensor of all weights.
Tensor kept(const Attention& s, const ScoreRange& b) {
  if (s.options.dropout == 0 || s.queries() * s.keys() == 0) return {};
  const std::int64_t each = leading(s.sample).numel();
  std::vector<RowDraws> rows;
  for (std::int64_t slice = b.n0; slice < b.n1; ++slice) {
    const std::int64_t first = (slice % each * s.queries() + b.r0) * s.keys();
    rows.push_back({s.rows[static_cast<std::size_t>(slice / each)],
                    rng_counter(s.sample.begin(), s.sample.rank(), first)});
  }
  return bernoulli(s.key, rows, 1 - s.options.dropout, {b.n1 - b.n0, b.r1 - b.r0, s.keys()},
                   s.q.device());
}

// x where the mask is 1, else 0; x itself without a mask.
Tensor dropped(const Tensor& x, const Tensor& mask) {
  return mask.defined() ? where(mask, x, zeros({}, x.dtype(), x.device())) : x;
}

// y = a b, or y += a b if `add`.
void product_into(const Tensor& a, const Tensor& b, const Tensor& y, bool add = false) {
  const bool fits = y.dtype() == a.dtype() || y.dtype() == arithmetic_type(a.dtype());
  if (fits && y.device() == a.device() && y.device() == b.device())
    return backend(y.device()).gemm(a.view(), b.view(), add ? 1 : 0, y.view());
  const Tensor product = gemm_f32(a, b);
  return add ? axpby(1, product, 1, y) : copy_into(product, y);
}

Tensor forward(const Attention& s) {
  const Tensor y = Tensor::empty({s.slices(), s.queries(), s.v.size(2)}, s.q.dtype(), s.q.device());
  for_each_block(s, false, [&](const ScoreRange& b) {
    product_into(dropped(weights_of(s, b), kept(s, b)), keys_of(s, s.v, b), part(y, b));
  });
  return y;
}

// The gradients of the operands; undefined for those that need none.
struct AttentionGradient {
  Tensor q, k, v;
};

AttentionGradient backward(const Attention& s, const Tensor& dy, const Adjoint& adjoint) {
  // A gradient that several blocks add to is f32.
  const bool several = s.queries() * s.keys() > block_scores(s.q.device());
  const auto gradient = [&](int i, const Tensor& x) {
    if (!adjoint.wants(i)) return Tensor();
    return Tensor::empty(x.shape(), several ? arithmetic_type(x.dtype()) : x.dtype(), x.device());
  };
  const AttentionGradient d{gradient(0, s.q), gradient(1, s.k), gradient(2, s.v)};
  for_each_block(s, true, [&](const ScoreRange& b) {
    const bool add = b.r0 > 0;
    const Tensor weights = weights_of(s, b), mask = kept(s, b), out = queries_of(s, dy, b);
    if (d.v.defined())
      product_into(dropped(weights, mask).transpose(1, 2), out, d.v.slice(0, b.n0, b.n1), add);
    if (!d.q.defined() && !d.k.defined()) return;
    const Tensor of_weights = dropped(gemm_f32(out, keys_of(s, s.v, b).transpose(1, 2)), mask);
    const Tensor& grads = weights;  // stored in the memory of the weights
    backend(grads.device())
        .score_weights_grad(rule_of(s, b), weights.view(), of_weights.view(), grads.view());
    if (d.q.defined()) product_into(grads, keys_of(s, s.k, b), part(d.q, b));
    if (d.k.defined())
      product_into(grads.transpose(1, 2), queries_of(s, s.q, b), d.k.slice(0, b.n0, b.n1), add);
  });
  return d;
}

Shape with_matrix(Shape batch_dims, std::int64_t rows, std::int64_t columns) {
  batch_dims.push_back(rows);
  batch_dims.push_back(columns);
  return batch_dims;
}

// x expanded to the leading axes.
Var spread_lead(const Var& x, const Shape& batch_dims) {
  const Shape shape = with_matrix(batch_dims, x.value().size(-2), x.value().size(-1));
  return x.shape() == shape ? x : expand(x, shape);
}

// A mask with merged leading axes; if these all have size 1, they stay so.
Tensor flat_mask(const Tensor& mask, const Shape& batch_dims) {
  Tensor m = mask;
  while (m.rank() < batch_dims.rank() + 2) m = m.unsqueeze(0);
  bool same = true;
  for (int i = 0; i < batch_dims.rank(); ++i) same = same && m.size(i) == 1;
  if (same) return reshape(m, {1, m.size(-2), m.size(-1)});
  return reshape(m.expand(with_matrix(batch_dims, m.size(-2), m.size(-1))),
                 {batch_dims.numel(), m.size(-2), m.size(-1)});
}

void check_attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  check(q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2 && q.shape().back() == k.shape().back() &&
            k.value().size(-2) == v.value().size(-2),
        "attention: queries {}, keys {} and values {} do not fit", q.shape(), k.shape(), v.shape());
  check(options.dropout >= 0 && options.dropout < 1, "attention: dropout rate {} outside [0, 1)",
        options.dropout);
}

bool trained(const std::vector<Var>& masks) {
  for (const Var& mask : masks) {
    if (mask.needs_grad()) return true;
  }
  return false;
}

// The sample axis: it must be a leading axis of the batched operands; otherwise the op mixes
// samples.
SampleAxis attention_samples(const std::vector<Var>& all, const Shape& batch_dims,
                             std::int64_t rows, std::int64_t columns) {
  const SampleAxis samples =
      broadcast_samples(attention_op, all, with_matrix(batch_dims, rows, columns));
  if (!samples.batched() || samples.axis() < batch_dims.rank()) return samples;
  for (const Var& x : all) {
    if (x.samples().batched()) return x.tape().mix(attention_op.name, x);
  }
  return samples;
}

// x repeated for each sample along `axis`.
Var batched_along(const Var& x, int axis, std::int64_t samples, int rank) {
  Shape one = Shape::filled(rank, 1);
  one[axis] = samples;
  const Var zero = untracked(x.tape(), zeros(one, x.dtype(), x.value().device()), axis);
  if (tracing()) explain_value("repeated", {}, {}, zero);
  return add(x, zero);
}

// The attention problem without its operands, which have all leading axes and the sample axis
// `samples`.
Attention described(const Var& q, const Var& k, const std::vector<Var>& masks,
                    const AttentionOptions& options, SampleAxis samples) {
  const Shape batch_dims = leading(q.shape());
  Attention s{.q = {},
              .k = {},
              .v = {},
              .masks = {},
              .options = options,
              .scale = options.scale_of(q.shape().back())};
  Tape& tape = q.tape();
  if (!tape.options().training) s.options.dropout = 0;
  const bool batched = samples.batched();
  check(s.options.dropout == 0 || !batched || samples.axis() == 0,
        "attention: dropout needs the samples along axis 0, not {}", batched ? samples.axis() : 0);
  check(s.options.dropout == 0 || !batched || tape.views(q) == 1,
        "attention: dropout over {} views of a sample; split_views first",
        batched ? tape.views(q) : 1);
  if (s.options.dropout > 0) s.key = tape.next_key();
  const Shape scores = with_matrix(batch_dims, q.value().size(-2), k.value().size(-2));
  s.sample = scores;
  if (batched) s.sample.erase(samples.axis());
  if (!batched) s.rows = {0};
  for (std::int64_t n = 0; batched && s.options.dropout > 0 && n < batch_dims[samples.axis()]; ++n)
    s.rows.push_back(tape.options().sample_id(n));
  for (const Var& mask : masks) {
    check(broadcast_shapes("attention", mask.shape(), scores) == scores,
          "attention: mask {} does not fit scores {}", mask.shape(), scores);
    s.masks.push_back(mask.value());
  }
  return s;
}

// The attention problem with its operands; their leading axes, and those of its masks, are merged.
Attention with_operands(Attention s, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Shape batch_dims = leading(q.shape());
  for (Tensor& mask : s.masks) mask = flat_mask(mask, batch_dims);
  const auto flat = [](const Tensor& x) {
    return reshape(contiguous(x), {leading(x.shape()).numel(), x.size(-2), x.size(-1)});
  };
  s.q = flat(q);
  s.k = flat(k);
  s.v = flat(v);
  return s;
}

// True if fused attention supports the options: no dropout, no keys that are always visible.
bool plain(const Attention& s) { return s.options.dropout == 0 && s.options.always_visible == 0; }

void give(Adjoint& adjoint, const std::array<Shape, 3>& shapes, const AttentionGradient& d) {
  if (d.q.defined()) adjoint.input(0, reshape(d.q, shapes[0]));
  if (d.k.defined()) adjoint.input(1, reshape(d.k, shapes[1]));
  if (d.v.defined()) adjoint.input(2, reshape(d.v, shapes[2]));
}

// Records attention by products and masked softmax.
Var by_products(const Attention& s, const std::array<Var, 3>& of, const Shape& shape,
                SampleAxis samples) {
  const auto& [q, k, v] = of;
  const std::array shapes{q.shape(), k.shape(), v.shape()};
  return q.tape().record(attention_op, {q, k, v}, reshape(forward(s), shape), samples,
                         [s, shapes](const Tensor& dy, Adjoint& adjoint) {
                           const Shape flat{s.slices(), s.queries(), s.v.size(2)};
                           give(adjoint, shapes,
                                backward(s, reshape(contiguous(dy), flat), adjoint));
                         });
}

// Records attention by the fused kernel.
Var by_kernel(const Attention& s, const FusedResult& result, const std::array<Var, 3>& of,
              const Shape& shape, SampleAxis samples) {
  const auto& [q, k, v] = of;
  const std::array shapes{q.shape(), k.shape(), v.shape()};
  return q.tape().record(
      attention_op, {q, k, v}, reshape(result.y, shape), samples,
      [s, result, shapes](const Tensor& dy, Adjoint& adjoint) {
        if (const auto d = fused_attention_grad(result, dy))
          return give(adjoint, shapes, {d->q, d->k, d->v});
        const Attention flat =
            with_operands(s, reshape(result.q, shapes[0]), reshape(result.k, shapes[1]),
                          reshape(result.v, shapes[2]));
        const AttentionGradient d =
            backward(flat, reshape(contiguous(dy), {flat.slices(), flat.queries(), flat.v.size(2)}),
                     adjoint);
        give(adjoint, shapes, d);
      });
}

}  // namespace

double AttentionOptions::scale_of(std::int64_t features) const {
  return scale.value_or(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(features, 1))));
}

Var attention(const Var& queries, const Var& keys_given, const Var& values,
              const std::vector<Var>& given_masks, const AttentionOptions& options) {
  check_attention(queries, keys_given, values, options);
  std::vector<Var> masks;
  for (const Var& mask : given_masks) masks.push_back(score_mask(mask));
  Var query = queries, key = keys_given, value = values;
  cast_inputs(attention_op, {&query, &key, &value});
  check(query.dtype() == key.dtype() && query.dtype() == value.dtype(),
        "attention: dtypes differ: queries are {}, keys {}, values {}", name(query.dtype()),
        name(key.dtype()), name(value.dtype()));
  if (trained(masks) || masks.size() > max_score_masks) {
    return matmul(dropout(attention_weights(query, key, masks, options), options.dropout), value);
  }
  const Shape keys = broadcast_shapes("attention", leading(key.shape()), leading(value.shape()));
  const Shape batch_dims = broadcast_shapes("attention", leading(query.shape()), keys);
  const std::int64_t a = query.value().size(-2), b = key.value().size(-2);
  std::vector<Var> all{query, key, value};
  all.insert(all.end(), masks.begin(), masks.end());
  const SampleAxis samples = attention_samples(all, batch_dims, a, b);
  const auto operand = [&](const Var& x) {
    const bool same_for_all = samples.batched() && x.samples().is_shared();
    const int axis = same_for_all ? samples.axis() : 0;
    return spread_lead(
        same_for_all ? batched_along(x, axis, batch_dims[axis], batch_dims.rank() + 2) : x,
        batch_dims);
  };
  const Var q = operand(query), k = operand(key), v = operand(value);
  const Attention s = described(q, k, masks, options, samples);
  const Shape shape = with_matrix(batch_dims, a, v.value().size(-1));
  if (tracing())
    trace_attributes({{"masks", masks},
                      {"causal", options.causal},
                      {"always_visible", options.always_visible},
                      {"scale", s.scale}});
  if (plain(s)) {
    if (const auto result =
            fused_attention(q.value(), k.value(), v.value(), s.masks, s.scale, s.options.causal))
      return by_kernel(s, *result, {q, k, v}, shape, samples);
  }
  return by_products(with_operands(s, q.value(), k.value(), v.value()), {q, k, v}, shape, samples);
}

}  // namespace sotto
