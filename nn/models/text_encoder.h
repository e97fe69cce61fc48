// Encoders of texts: sentence vectors, and classification.
#pragma once

#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// A body that reads whole texts: BERT, DistilBERT, RoBERTa. forward() gives a classifier's logits
// [n, classes], or, without a classifier, hidden().
class TextEncoder : public TokenModel {
 public:
  // The values [n, t, features] in front of block k, from 0 to block_count: behind the last block.
  // Padded positions hold numbers without meaning.
  virtual Var before_block(const TokenInputs& inputs, std::int64_t k) = 0;
  // forward() of such values, with the mask of their inputs.
  virtual Var from_block(const Var& x, const std::optional<Var>& mask, std::int64_t k) = 0;
  Var forward(const TokenInputs& inputs) final {
    return from_block(before_block(inputs, 0), inputs.mask, 0);
  }
  using TokenModel::forward;
  // The last block's values, [n, t, features].
  Var hidden(const TokenInputs& inputs) { return before_block(inputs, parts().block_count); }
  // The head's dense layer and activation on the first position, [n, features]: BERT's pooled
  // vector. Throws std::invalid_argument for a model without that layer.
  virtual Var pooled(const TokenInputs& inputs) = 0;
  // The mean of hidden() over each row's tokens, [n, features]; `normalized` to length 1. A row
  // without tokens has zeros.
  Var sentence_vectors(const TokenInputs& inputs, bool normalized = true);
};

// The mean of x [n, t, features] over the positions where mask [n, t] is not 0; over all without a
// mask.
Var mean_over_tokens(const Var& x, const std::optional<Var>& mask);

}  // namespace sotto::nn
