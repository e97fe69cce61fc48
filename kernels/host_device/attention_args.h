// Attention whose scores reach no memory (Dao et al. 2022, "FlashAttention"), as one primitive:
// what it reads and writes.
#pragma once

#include "core/view.h"

namespace sotto {

// y = softmax(scale q k^T) v, query t seeing the keys s <= t where `causal`. Views have 16 bits,
// stride 1 along the last axis and none of 0 where there is more than one.
struct FusedAttention {
  View q, k, v;   // [n, h, a, d], [n, h, b, d], [n, h, b, e]
  View y, stats;  // [n, h, a, e]; [n, h, a], f32 and row-major: log sum_s exp(scores)
  double scale = 1;
  bool causal = false;

  std::int64_t samples() const { return q.size[0]; }
  std::int64_t heads() const { return q.size[1]; }
  std::int64_t queries() const { return q.size[2]; }
  std::int64_t keys() const { return k.size[2]; }
};

// Where the gradients come from, and go to: like y, q, k and v.
struct FusedAttentionGrad {
  View dy, dq, dk, dv;
};

}  // namespace sotto
