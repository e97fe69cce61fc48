#include "nn/layers/dense_layers.h"

#include <cmath>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/shape_ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/init.h"

namespace sotto::nn {

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options) {
  check(in >= 1 && out >= 1, "Linear: {} inputs and {} outputs", in, out);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = std::make_unique<Parameter>(random_uniform({out, in}, -bound, bound));
  if (options.bias) bias = std::make_unique<Parameter>(random_uniform({out}, -bound, bound));
}

Var Linear::forward(const Var& x) {
  Tape& tape = x.tape();
  if (!bias) return linear(x, tape.use(*weight));
  const Var w = tape.use(*weight);
  return linear(x, w, tape.use(*bias));
}

void Linear::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

Embedding::Embedding(std::int64_t rows, std::int64_t features, const EmbeddingOptions& options)
    : options_(options) {
  check(rows >= 1 && features >= 1, "Embedding: {} rows of {}", rows, features);
  check(!options.scale_grad_by_freq,
        "Embedding: scale_grad_by_freq divides by how often an id occurs in the batch, so that "
        "other samples would change a sample's gradient");
  check(!options.max_norm,
        "Embedding: max_norm {} would change the rows that a batch looks up, without noise",
        options.max_norm.value_or(0));
  weight = std::make_unique<Parameter>(random_normal({rows, features}));
  options_.padding = padding_row("Embedding", options.padding, rows);
  if (options_.padding) copy_into(zeros({}), weight->value.select(0, *options_.padding));
}

Var Embedding::forward(const Var& ids) {
  return embedding(ids.tape().use(*weight), ids, options_.padding);
}

void Embedding::visit(const Visitor& visitor) { visitor("weight", weight); }

Var Flatten::forward(const Var& x) { return flatten(x, start_, end_); }

Dropout::Dropout(double rate) : rate_(rate) {
  check(rate >= 0 && rate < 1, "Dropout: rate {} outside [0, 1)", rate);
}

Var Dropout::forward(const Var& x) { return dropout(x, rate_); }

Bilinear::Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias) {
  check(in1 >= 1 && in2 >= 1 && out >= 1, "Bilinear: {} and {} inputs, {} outputs", in1, in2, out);
  const double bound = 1 / std::sqrt(static_cast<double>(in1));
  weight = std::make_unique<Parameter>(random_uniform({out, in1, in2}, -bound, bound));
  if (with_bias) bias = std::make_unique<Parameter>(random_uniform({out}, -bound, bound));
}

Var Bilinear::forward(const Var& x1, const Var& x2) {
  Tape& tape = x1.tape();
  return bilinear(x1, x2, tape.use(*weight), bias ? std::optional(tape.use(*bias)) : std::nullopt);
}

void Bilinear::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

}  // namespace sotto::nn
