// The encoder of BERT, DistilBERT and RoBERTa.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/encoder_block.h"
#include "nn/models/text_encoder.h"

namespace sotto::nn {

// The vector of a row: that of its first position, the mean over its tokens, or their mean with the
// weights softmax_t(q . norm(h_t) / sqrt(features)), q trained.
enum class Pooling { first, mean, attention };

// The head of a classifier: out(drop(activation(dense(drop(v))))) of the row's vector v.
struct BertHeadOptions {
  std::string dense = {}, out = {};  // their paths; without `out` the model has no classifier
  std::function<Var(Var)> activation = {};
  double dense_dropout = 0, out_dropout = 0;
  std::int64_t classes = 0;
  Pooling pooling = Pooling::first;
  bool first_only = false;  // dense belongs to the first position: other vectors pass it by
};

struct BertEncoderOptions {
  std::string name = {};                                        // in messages
  std::int64_t vocabulary = 0, positions = 0, token_types = 0;  // 0 token types: none
  std::optional<std::int64_t> padding = {};                     // the id whose row is not trained
  // Positions count the tokens that are not padding, from `padding` + 1 (RoBERTa).
  bool positions_after_padding = false;
  double embedding_dropout = 0;
  std::string blocks = {};  // the path of the blocks
  std::int64_t block_count = 0;
  EncoderBlockOptions block = {};
  BertHeadOptions head = {};
};

// The sum of the vectors of words, positions and token types, normalised: [n, t, features] of ids
// [n, t].
class BertEmbeddings final : public Module {
 public:
  explicit BertEmbeddings(const BertEncoderOptions& options);
  Var forward(const Var& ids) override { return forward(TokenInputs{.ids = ids}); }
  Var forward(const TokenInputs& inputs);
  void visit(const Visitor& visitor) override;

 private:
  Var position_ids(const TokenInputs& inputs) const;

  std::string name_;
  std::int64_t positions_;
  std::optional<std::int64_t> counted_after_;  // padding, where positions count from it
  double dropout_;
  std::unique_ptr<Module> words_, position_table_, token_types_;
  LayerNorm norm_;
};

// A body of encoder blocks; forward() gives a classifier's logits [n, classes], or, without a
// classifier, what the last block gives, [n, t, features].
class BertEncoder final : public TextEncoder {
 public:
  explicit BertEncoder(const BertEncoderOptions& options);
  Var before_block(const TokenInputs& inputs, std::int64_t k) override;
  Var from_block(const Var& x, const std::optional<Var>& mask, std::int64_t k) override;
  Var pooled(const TokenInputs& inputs) override;
  ModelParts parts() const override;
  void visit(const Visitor& visitor) override;

 private:
  Var through_blocks(Var x, const std::optional<Var>& mask, std::int64_t first, std::int64_t end);
  Var dense_of(const Var& vectors);
  Var row_vectors(const Var& hidden, const std::optional<Var>& mask);

  BertEncoderOptions options_;
  BertEmbeddings embeddings_;
  std::vector<std::unique_ptr<EncoderBlock>> blocks_;
  std::unique_ptr<Module> dense_, out_;
  std::unique_ptr<Parameter> query_;  // [1, features], of Pooling::attention
};

}  // namespace sotto::nn
