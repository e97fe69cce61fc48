#include "autograd/ops/sequence/fused_attention.h"

#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/attention_args.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Kernels read 16 bytes (8 values) at a time, so rows of features must be aligned to that.
constexpr std::int64_t together = 8;

// True if a kernel can read x in place.
bool readable(const Tensor& x) {
  if (x.strides().back() != 1) return false;
  for (int axis = 0; axis < x.rank() - 1; ++axis) {
    if (x.size(axis) != 1 && (x.strides()[axis] <= 0 || x.strides()[axis] % together != 0))
      return false;
  }
  return true;
}

// x with exactly two leading axes (samples and heads).
Tensor with_heads(const Tensor& x) {
  Tensor y = x.rank() == 2 ? x.unsqueeze(0) : x;
  if (y.rank() == 3) y = y.unsqueeze(1);
  if (y.rank() > 4) {
    y = contiguous(y);
    std::int64_t slices = 1;
    for (int axis = 0; axis < x.rank() - 2; ++axis) slices *= x.size(axis);
    y = reshape(y, {slices, 1, x.size(-2), x.size(-1)});
  }
  return readable(y) ? y : contiguous(y);
}

// An uninitialised tensor in which the features of all heads of a position are contiguous, as
// projections store them.
Tensor like(const Tensor& x, std::int64_t features) {
  return Tensor::empty_ordered({x.size(0), x.size(1), x.size(2), features}, {0, 2, 1, 3}, x.dtype(),
                               x.device());
}

FusedAttention views_of(const FusedResult& r) {
  return {.q = r.q.view(),
          .k = r.k.view(),
          .v = r.v.view(),
          .y = r.y.view(),
          .stats = r.stats.view(),
          .bias = r.bias.defined() ? r.bias.view() : View{},
          .scale = r.scale,
          .causal = r.causal};
}

// The bias of a hidden key: below all scores that leave a trace beside it, and far from overflow
// where a kernel multiplies it by log2(e).
constexpr double hidden_bias = -1e30;

// x, which broadcasts to [.., a, b] for queries of the shape [.., a, d], with the four axes of
// with_heads(). Axes along which it is broadcast have size 1.
Tensor broadcast_with_heads(const Tensor& x, const Shape& queries) {
  Tensor y = x;
  while (y.rank() < queries.rank()) y = y.unsqueeze(0);
  if (y.rank() == 2) y = y.unsqueeze(0);
  if (y.rank() == 3) y = y.unsqueeze(1);
  if (y.rank() == 4) return y;
  Shape all = y.shape();
  std::int64_t slices = 1;
  bool same = true;
  for (int axis = 0; axis < y.rank() - 2; ++axis) {
    same = same && y.size(axis) == 1;
    slices *= all[axis] = queries[axis];
  }
  if (same) return reshape(y, {1, 1, y.size(-2), y.size(-1)});
  return reshape(contiguous(y.expand(all)), {slices, 1, y.size(-2), y.size(-1)});
}

// hidden_bias where a mask hides a key, else 0; undefined without masks.
Tensor bias_of(const std::vector<Tensor>& masks, const Tensor& q, std::int64_t keys) {
  const Device device = q.device();
  const auto number = [&](double value) { return full({}, value, Dtype::f32, device); };
  Tensor bias;
  for (const Tensor& mask : masks) {
    Tensor hides = mask.to(device);
    while (hides.rank() < q.rank()) hides = hides.unsqueeze(0);
    bias = where(hides, number(hidden_bias), bias.defined() ? bias : number(0));
  }
  if (!bias.defined()) return {};
  bias = broadcast_with_heads(bias, q.shape());
  Shape all = bias.shape();
  all[3] = keys;
  return contiguous(bias.expand(all));
}

// x [n, h, a, e] for queries with a visible key, else 0.
Tensor where_seen(const FusedResult& r, const Tensor& x) {
  if (!r.bias.defined()) return x;
  const Tensor least = full({}, hidden_bias / 2, Dtype::f32, x.device());
  const Tensor seen = binary(binary_index<functors::Greater>, r.stats.unsqueeze(3), least);
  return where(seen, x, zeros({}, x.dtype(), x.device()));
}

bool fits(const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool narrow = q.dtype() == Dtype::f16 || q.dtype() == Dtype::bf16;
  return narrow && q.device() != cpu && k.device() == q.device() && v.device() == q.device() &&
         q.numel() > 0 && k.numel() > 0 && v.numel() > 0 && q.size(-1) % together == 0 &&
         v.size(-1) % together == 0;
}

}  // namespace

std::optional<FusedResult> fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const std::vector<Tensor>& masks, double scale,
                                           bool causal) {
  if (!fits(q, k, v)) return {};
  for (const Tensor& mask : masks) {
    if (mask.dtype() != Dtype::i64) return {};
  }
  FusedResult r{with_heads(q), with_heads(k), with_heads(v), {}, {}, {}, scale, causal};
  r.bias = bias_of(masks, q, k.size(-2));
  r.y = like(r.q, r.v.size(3));
  r.stats = Tensor::empty({r.q.size(0), r.q.size(1), r.q.size(2)}, Dtype::f32, q.device());
  if (!backend(q.device()).attention(views_of(r))) return {};
  r.y = where_seen(r, r.y);
  return r;
}

std::optional<FusedGradients> fused_attention_grad(const FusedResult& r, const Tensor& dy) {
  const Tensor grads = where_seen(r, with_heads(dy.to(r.y.device())));
  const FusedGradients d{like(r.q, r.q.size(3)), like(r.k, r.k.size(3)), like(r.v, r.v.size(3))};
  const FusedAttentionGrad views{grads.view(), d.q.view(), d.k.view(), d.v.view()};
  if (!backend(r.y.device()).attention_grad(views_of(r), views)) return {};
  return d;
}

}  // namespace sotto
