// Causal language models, and the keys and values that they keep while they generate.
#pragma once

#include <utility>
#include <vector>

#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// Keys and values of the tokens that a decoder has read, for each of its layers.
class KeyValueCache {
 public:
  // The number of tokens that all layers have read.
  std::int64_t length() const { return length_; }
  // Appends a layer's keys and values [1, heads, t, e] and returns all of that layer, [1, heads,
  // length() + t, e]. Layers are numbered from 0.
  std::pair<Tensor, Tensor> append(std::size_t layer, const Tensor& keys, const Tensor& values);
  // Counts t tokens that every layer has appended.
  void advance(std::int64_t t) { length_ += t; }

 private:
  struct Layer {
    Tensor keys, values;  // [1, heads, capacity, e]
  };
  std::vector<Layer> layers_;
  std::int64_t length_ = 0;
};

// A decoder: the logits at token t are those of the token behind it.
class LanguageModel : public TokenModel {
 public:
  // [n, t, vocabulary]
  Var forward(const TokenInputs& inputs) final { return output(hidden(inputs, nullptr)); }
  using TokenModel::forward;
  // The logits of the token behind the last one, [1, vocabulary], for one row of ids [1, t] that
  // follows those in the cache. Call it on a tape that is not training.
  Var next(const Var& ids, KeyValueCache& cache);
  // The most tokens of a row; 0: any number.
  virtual std::int64_t max_tokens() const = 0;

 protected:
  // The input of the output layer, [n, t, width]. With a cache the row follows the tokens in it.
  virtual Var hidden(const TokenInputs& inputs, KeyValueCache* cache) = 0;
  virtual Var output(const Var& hidden) = 0;  // the logits
};

struct TokenLossOptions {
  std::int64_t ignore_index = -100;  // labels that do not count
  bool sum = false;                  // over a row's labels, and not their mean
};

// Each row's own loss, [n]: the cross entropy of the logits [n, t, vocabulary] at a token with the
// label behind it; labels i64 [n, t] stand beside the ids. Rows do not share a mean, so that a
// row's loss does not depend on the others'. A row without labels that count has 0.
Var next_token_loss(const Var& logits, const Tensor& labels, const TokenLossOptions& options = {});

}  // namespace sotto::nn
