// Attention in one kernel, if the device has one; used by attention().
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// The result of fused attention, with the tensors that its backward reads. Four axes: samples,
// heads, positions, features.
struct FusedResult {
  Tensor q, k, v, y, stats;
  Tensor bias;  // undefined without masks
  double scale;
  bool causal;
};

// y [.., a, e] = softmax(scale q k^T) v for q [.., a, d], k [.., b, d] and v [.., b, e] with equal
// leading axes; with `causal`, query t attends to the keys s <= t. The masks, i64 and of sizes that
// broadcast to [.., a, b], hide keys where they are not 0; y is 0 for a query without a visible
// key. (A mask adds a number to the scores: a score that is not finite makes its query's y NaN,
// even if its key is hidden.) Returns nullopt unless the operands are on one device that has a
// kernel for their type and sizes.
std::optional<FusedResult> fused_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const std::vector<Tensor>& masks, double scale,
                                           bool causal);

struct FusedGradients {
  Tensor q, k, v;
};

// The gradients for dy, of y's shape; nullopt if the device has a kernel for the forward pass only.
std::optional<FusedGradients> fused_attention_grad(const FusedResult& result, const Tensor& dy);

}  // namespace sotto
