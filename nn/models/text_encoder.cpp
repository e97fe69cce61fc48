#include "nn/models/text_encoder.h"

#include "autograd/ops.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

Var mean_over_tokens(const Var& x, const std::optional<Var>& mask) {
  if (!mask) return mean(x, {1});
  Tape& tape = x.tape();
  const Dtype type = x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const Var tokens = untracked(tape, to_dtype(mask->value(), type), mask->samples());
  if (tracing()) explain_value("to_f32", {*mask}, {}, tokens);
  const Var counts = maximum(sum(tokens, {1}, true), tape.constant(full({}, 1, type)));
  const Var kept = where(unsqueeze(*mask, 2), x, tape.constant(zeros({}, x.dtype())));
  return sum(kept, {1}) / counts;
}

Var TextEncoder::sentence_vectors(const TokenInputs& inputs, bool normalized) {
  const Var vectors = mean_over_tokens(hidden(inputs), inputs.mask);
  if (!normalized) return vectors;
  constexpr double shortest = 1e-12;  // as in PyTorch's normalize
  const Var length = norm(vectors, {1}, true);
  return vectors / maximum(length, vectors.tape().constant(full({}, shortest, length.dtype())));
}

}  // namespace sotto::nn
