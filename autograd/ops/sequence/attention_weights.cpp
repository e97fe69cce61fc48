// The weights of attention as a tape value, composed from a product and a softmax.
#include <limits>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/sequence/attention.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

constexpr double hidden_score = -std::numeric_limits<double>::infinity();

// 1 for the keys that a causal query does not see.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, std::int64_t always_visible) {
  std::vector<std::int64_t> mask;
  for (std::int64_t t = 0; t < queries; ++t) {
    for (std::int64_t s = 0; s < keys; ++s) mask.push_back(s > t + always_visible);
  }
  return Tensor::from(mask, {queries, keys});
}

// 1 for queries with a visible key, else 0: a query without one would divide 0 by 0.
Tensor any_seen(const Tensor& scores) {
  const int last = scores.rank() - 1;
  if (scores.size(last) == 0) return full({}, 1, scores.dtype(), scores.device());
  const Tensor top = reduce(Reduction::max, scores, {last}, true);
  return binary(binary_index<functors::Greater>, top,
                full({}, hidden_score, top.dtype(), top.device()));
}

}  // namespace

Var score_mask(const Var& mask) {
  if (is_float(mask.dtype()) || mask.dtype() == Dtype::i64) return mask;
  const Var y = untracked(mask.tape(), to_dtype(mask.value(), Dtype::i64), mask.samples());
  if (tracing()) explain_value("to_i64", {mask}, {}, y);
  return y;
}

Var attention_weights(const Var& q, const Var& k, const std::vector<Var>& masks,
                      const AttentionOptions& options) {
  Tape& tape = q.tape();
  Var scores = matmul(q, transpose(k, -1, -2));
  scores = affine(scores, options.scale_of(q.shape().back()), 0);
  const Var min = tape.constant(full({}, hidden_score, scores.dtype()));
  for (const Var& given : masks) {
    const Var mask = score_mask(given);
    scores =
        is_float(mask.dtype()) ? add(scores, cast(mask, scores.dtype())) : where(mask, min, scores);
  }
  if (options.causal) {
    const Tensor mask =
        causal_mask(scores.value().size(-2), scores.value().size(-1), options.always_visible);
    scores = where(tape.constant(mask), min, scores);
  }
  // Queries that see no key pass the softmax with finite scores.
  const Var zero = tape.constant(zeros({}, scores.dtype()));
  const Var seen = untracked(tape, any_seen(scores.value()), scores.samples());
  if (tracing()) explain_value("seen", {scores}, {}, seen);
  return where(seen, softmax(where(seen, scores, zero)), zero);
}

}  // namespace sotto
