// Arguments of fused attention, one primitive that never stores the scores (Dao et al. 2022,
// "FlashAttention").
#pragma once

#include "core/view.h"

namespace sotto {

// y = softmax(scale q k^T + bias) v; with `causal`, query t attends to the keys s <= t. All views
// but stats and bias have 16 bits, stride 1 along the last axis, and no stride of 0 along an axis
// of more than one element. The bias is f32, row-major and finite.
struct FusedAttention {
  View q, k, v;    // [n, h, a, d], [n, h, b, d], [n, h, b, e]
  View y, stats;   // [n, h, a, e]; [n, h, a], f32 and row-major: log sum_s exp(scores)
  View bias = {};  // none without data, or [n or 1, h or 1, a or 1, b]
  double scale = 1;
  bool causal = false;

  std::int64_t samples() const { return q.size[0]; }
  std::int64_t heads() const { return q.size[1]; }
  std::int64_t queries() const { return q.size[2]; }
  std::int64_t keys() const { return k.size[2]; }
};

// The gradient dy of y, and the outputs dq, dk and dv, shaped like y, q, k and v.
struct FusedAttentionGrad {
  View dy, dq, dk, dv;
};

}  // namespace sotto
