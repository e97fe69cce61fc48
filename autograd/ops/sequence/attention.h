// Scaled dot-product attention (Vaswani et al. 2017) as one operation that never stores all scores
// (queries times keys).
#pragma once

#include <optional>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

struct AttentionOptions {
  // Query t attends to key s only if s <= t; s counts from the first key that is not always
  // visible.
  bool causal = false;
  // The number of first keys that all queries see. (They come first, so that the length and padding
  // of the other keys does not change the rounding of sums with them.)
  std::int64_t always_visible = 0;
  std::optional<double> scale = {};  // default: 1 / sqrt(d)
  double dropout = 0;                // of the weights, while the tape is training

  // The scale, or its default for d = `features`; where there are none, all scores are zero.
  double scale_of(std::int64_t features) const;
};

// y = softmax(scale q k^T + masks) v over the keys: q [.., a, d], k [.., b, d], v [.., b, e], y
// [.., a, e]. Leading axes broadcast; the sample axis is one of them. Masks broadcast to [.., a,
// b]: a boolean or integer mask hides keys where it is not 0 (PyTorch's
// scaled_dot_product_attention hides where a boolean is false), a floating-point one is added to
// the scores. Scores are computed block by block, and recomputed in backward. With a mask that
// needs a gradient, or with more than four masks, attention is composed of matmul and softmax, and
// stores the weights. Throws std::invalid_argument for shapes that do not fit.
Var attention(const Var& q, const Var& k, const Var& v, const std::vector<Var>& masks = {},
              const AttentionOptions& options = {});

// A mask as the operations above compute with it: i64, not 0 where it hides, or floating-point. A
// boolean or integer one is converted.
Var score_mask(const Var& mask);

// The weights, [.., a, b], without dropout, for inspection and tests.
Var attention_weights(const Var& q, const Var& k, const std::vector<Var>& masks = {},
                      const AttentionOptions& options = {});

}  // namespace sotto
