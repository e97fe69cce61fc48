// Scaled dot-product attention (Vaswani et al. 2017) as one operation that keeps nothing as large
// as queries times keys.
#pragma once

#include <optional>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

struct AttentionOptions {
  // Query t sees the keys s <= t, counted from behind those that are always visible.
  bool causal = false;
  // So many first keys are seen by all queries. (They are the first, and not the last, so that how
  // long the others are, or are padded, does not show in how sums with them are rounded.)
  std::int64_t always_visible = 0;
  std::optional<double> scale = {};  // 1 / sqrt(d) without one
  double dropout = 0;                // on the weights, while the tape is training
};

// y = softmax(scale q k^T + masks) v over the keys: q [.., a, d], k [.., b, d], v [.., b, e], y
// [.., a, e]. The leading axes broadcast; the samples lie along one of them. Masks broadcast to
// [.., a, b]: an i64 one hides keys where it is 1, any other is added to the scores. Scores are
// made block by block, in the backward pass once more. A mask that wants a gradient, or a fifth
// mask, takes the plain way through matmul and softmax, which keeps the weights. Throws
// std::invalid_argument for shapes that do not fit.
Var attention(const Var& q, const Var& k, const Var& v, const std::vector<Var>& masks = {},
              const AttentionOptions& options = {});

// The weights themselves, [.., a, b], without dropout: for people to look at, and for tests.
Var attention_weights(const Var& q, const Var& k, const std::vector<Var>& masks = {},
                      const AttentionOptions& options = {});

}  // namespace sotto
