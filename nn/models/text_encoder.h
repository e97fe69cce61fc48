// Encoders of texts: sentence vectors, and classification.
#pragma once

#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// A body that reads whole texts: BERT, DistilBERT, RoBERTa. forward() gives a classifier's logits
// [n, classes], or, without a classifier, hidden().
class TextEncoder : public TokenModel {
 public:
  // The last block's values, [n, t, features]; padded positions hold numbers without meaning.
  virtual Var hidden(const TokenInputs& inputs) = 0;
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
