#include "nn/models/bert_encoder.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

// Rows of tokens that are not padding, counted from padding + 1; padding has position `padding`.
Tensor positions_after(const Tensor& ids, std::int64_t padding) {
  std::vector<std::int64_t> positions = ids.to(cpu).to_vector<std::int64_t>();
  const auto width = static_cast<std::size_t>(ids.shape()[1]);
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (i % width == 0) seen = 0;
    positions[i] = positions[i] == padding ? padding : ++seen + padding;
  }
  return Tensor::from(positions, ids.shape()).to(ids.device());
}

// Keys that the mask [n, t] hides, of values x [n, t, features].
std::vector<Var> key_masks(const Var& x, const std::optional<Var>& mask) {
  if (mask) {
    const Shape rows{x.shape()[0], x.shape()[1]};
    check(!is_float(mask->dtype()) && mask->shape() == rows,
          "attention mask: {} {} for ids {}, not i64 of the same shape", name(mask->dtype()),
          mask->shape(), rows);
  }
  return hidden_keys(mask);
}

// sum_t softmax_t(query . norm(x_t) / sqrt(features)) x_t over the tokens of x [n, t, features].
Var attention_over_tokens(const Var& x, const std::optional<Var>& mask, const Var& query,
                          double eps) {
  constexpr double hidden = -6e4;  // finite in f16, and e^hidden is 0 in all types
  const std::int64_t features = x.shape().back();
  Var scores = linear(layer_norm(x, {features}, {}, eps), query) *
               (1 / std::sqrt(static_cast<double>(features)));
  if (mask) {
    const Var low = x.tape().constant(full({}, hidden, scores.dtype()));
    scores = where(unsqueeze(*mask, 2), scores, low);
  }
  return sum(x * softmax(scores, 1), {1});
}

}  // namespace

BertEmbeddings::BertEmbeddings(const BertEncoderOptions& options)
    : name_(options.name),
      positions_(options.positions),
      dropout_(options.embedding_dropout),
      words_(embedding_child(options.vocabulary, options.block.features, options.padding)),
      norm_(options.block.features, {.eps = options.block.norm_eps}) {
  if (options.positions_after_padding) counted_after_ = options.padding;
  position_table_ = embedding_child(options.positions, options.block.features, counted_after_);
  if (options.token_types > 0)
    token_types_ = embedding_child(options.token_types, options.block.features);
}

Var BertEmbeddings::position_ids(const TokenInputs& inputs) const {
  const Var& ids = inputs.ids;
  if (inputs.positions) return *inputs.positions;
  const std::int64_t last = ids.shape()[1] + (counted_after_ ? *counted_after_ + 1 : 0);
  check(last <= positions_, "{}: {} tokens for {} positions", name_, ids.shape()[1],
        positions_ - (last - ids.shape()[1]));
  if (!counted_after_) return positions_of(ids);
  const Var y = untracked(ids.tape(), positions_after(ids.value(), *counted_after_), ids.samples());
  if (tracing()) explain_value("counted_positions", {ids}, {{"padding", *counted_after_}}, y);
  return y;
}

Var BertEmbeddings::forward(const TokenInputs& inputs) {
  check(inputs.ids.rank() == 2, "{}: ids {} are not rows of tokens", name_, inputs.ids.shape());
  Var x = (*words_)(inputs.ids) + (*position_table_)(position_ids(inputs));
  if (token_types_) {
    const Var first = inputs.ids.tape().constant(zeros({1}, Dtype::i64));
    x = x + (*token_types_)(inputs.token_types.value_or(first));
  } else {
    check(!inputs.token_types, "{}: the model has no token types", name_);
  }
  return dropout(norm_(x), dropout_);
}

void BertEmbeddings::visit(const Visitor& visitor) {
  visitor("word_embeddings", words_);
  visitor("position_embeddings", position_table_);
  visitor("token_type_embeddings", token_types_);
  visitor("LayerNorm", norm_);
}

BertEncoder::BertEncoder(const BertEncoderOptions& options)
    : options_(options), embeddings_(options) {
  const std::int64_t features = options.block.features;
  for (std::int64_t k = 0; k < options.block_count; ++k)
    blocks_.push_back(std::make_unique<EncoderBlock>(options.block));
  const BertHeadOptions& head = options.head;
  if (!head.dense.empty()) dense_ = linear_child(features, features);
  if (head.out.empty()) return;
  out_ = linear_child(features, head.classes);
  if (head.pooling == Pooling::attention)
    query_ = std::make_unique<Parameter>(zeros({1, features}));
}

Var BertEncoder::through_blocks(Var x, const std::optional<Var>& mask, std::int64_t first,
                                std::int64_t end) {
  check(0 <= first && first <= end && end <= std::ssize(blocks_), "{}: blocks {} to {} of {}",
        options_.name, first, end, blocks_.size());
  const std::vector<Var> masks = key_masks(x, mask);
  for (std::int64_t k = first; k < end; ++k) x = (*blocks_[static_cast<std::size_t>(k)])(x, masks);
  return x;
}

Var BertEncoder::before_block(const TokenInputs& inputs, std::int64_t k) {
  return through_blocks(embeddings_.forward(inputs), inputs.mask, 0, k);
}

Var BertEncoder::dense_of(const Var& vectors) {
  check(dense_ != nullptr, "{}: the model has no pooled vector", options_.name);
  const Var x = dropout(vectors, options_.head.dense_dropout);
  return options_.head.activation((*dense_)(x));
}

Var BertEncoder::pooled(const TokenInputs& inputs) {
  return dense_of(select(hidden(inputs), 1, 0));
}

Var BertEncoder::row_vectors(const Var& hidden, const std::optional<Var>& mask) {
  if (query_)
    return attention_over_tokens(hidden, mask, hidden.tape().use(*query_), options_.block.norm_eps);
  const bool mean = options_.head.pooling == Pooling::mean;
  return mean ? mean_over_tokens(hidden, mask) : select(hidden, 1, 0);
}

Var BertEncoder::from_block(const Var& x, const std::optional<Var>& mask, std::int64_t k) {
  const BertHeadOptions& head = options_.head;
  const Var last = through_blocks(x, mask, k, std::ssize(blocks_));
  if (!out_) return last;
  const Var v = row_vectors(last, mask);
  const bool pass_by = head.first_only && head.pooling != Pooling::first;
  const Var features = pass_by ? v : dense_of(v);
  return (*out_)(dropout(features, head.out_dropout));
}

ModelParts BertEncoder::parts() const {
  ModelParts parts{
      .embeddings = {"embeddings"}, .blocks = options_.blocks, .block_count = options_.block_count};
  const BertHeadOptions& head = options_.head;
  if (query_) parts.head.emplace_back("pooler_query");
  if (dense_ && !(head.first_only && head.pooling != Pooling::first))
    parts.head.push_back(head.dense);
  if (out_) parts.head.push_back(head.out);
  return parts;
}

void BertEncoder::visit(const Visitor& visitor) {
  visitor("embeddings", embeddings_);
  for (std::size_t k = 0; k < blocks_.size(); ++k)
    visitor(options_.blocks + "." + std::to_string(k), *blocks_[k]);
  visitor("pooler_query", query_);
  visitor(options_.head.dense, dense_);
  visitor(options_.head.out, out_);
}

}  // namespace sotto::nn
