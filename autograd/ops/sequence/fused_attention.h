// Attention in one kernel, where a device has one: behind attention().
#pragma once

#include <optional>

#include "core/tensor.h"

namespace sotto {

// What was computed so, and what the way back needs of it. Four axes: samples, heads, positions,
// features.
struct FusedResult {
  Tensor q, k, v, y, stats;
  double scale;
  bool causal;
};

// y [.., a, e] = softmax(scale q k^T) v of q [.., a, d], k [.., b, d] and v [.., b, e], which have
// the same leading axes; query t sees the keys s <= t where `causal`. Nothing where the operands
// are not on one device that has such a kernel for their type and sizes.
std::optional<FusedResult> fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                           double scale, bool causal);

struct FusedGradients {
  Tensor q, k, v;
};

// By dy, of y's shape; nothing where the device has a kernel for the way forward alone.
std::optional<FusedGradients> fused_attention_grad(const FusedResult& result, const Tensor& dy);

}  // namespace sotto
