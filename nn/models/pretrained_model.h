// Models whose weights other software wrote: the parts by which they are tuned, and their inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::nn {

// The parts of a model, by the paths of modules and parameters within it: "wte" is the module or
// parameter of that name and all below it.
struct ModelParts {
  std::vector<std::string> embeddings = {};  // tables and class tokens in front of the first block
  std::string blocks = {};                   // block k is blocks + "." + k
  // The paths of the blocks, where they are not numbered in one list: "layer1.0".
  std::vector<std::string> listed = {};
  std::int64_t block_count = 0;        // numbered from 0
  std::vector<std::string> head = {};  // behind the blocks: the pooler and the classifier

  // The path of block k. Throws std::invalid_argument unless 0 <= k < block_count.
  std::string block(std::int64_t k) const;
  // True for the path of a module or parameter of these parts.
  bool in_embeddings(const std::string& path) const;
  bool in_head(const std::string& path) const;  // the same of the head
};

// True if the path is `part` or of something in it.
bool is_within(const std::string& path, const std::string& part);

// A model of an architecture that others publish weights for. Its names are those of the model's
// first publisher, without the prefix of a body ("transformer.", "bert.").
class PretrainedModel : public Module {
 public:
  virtual ModelParts parts() const = 0;
};

// A batch of rows of token numbers; n rows of t tokens.
struct TokenInputs {
  Var ids;                              // i64 [n, t]
  std::optional<Var> mask = {};         // i64 [n, t]: 1 a token, 0 padding; absent: no padding
  std::optional<Var> positions = {};    // i64 [n, t]; absent: the model's own, as without padding
  std::optional<Var> token_types = {};  // i64 [n, t], for models that have them; absent: 0
};

// A model of tokens. Padding adds nothing to what counts: neither to a row's outputs nor to those
// at its own tokens.
class TokenModel : public PretrainedModel {
 public:
  // [n, t, vocabulary] of a language model, [n, classes] of a classifier.
  virtual Var forward(const TokenInputs& inputs) = 0;
  Var forward(const Var& ids) final { return forward(TokenInputs{.ids = ids}); }
  using Module::operator();
  // Calls forward() in the model's precision and reports the call to the ModuleHook.
  Var operator()(const TokenInputs& inputs);
};

// A classifier of images [n, channels, h, w]: the values of a frozen trunk can be kept, and given
// to what follows it again and again.
class ImageModel : public PretrainedModel {
 public:
  // The values in front of block k, from 0 to block_count: behind the last block. Throws
  // std::invalid_argument for another k.
  Var before_block(const Var& images, std::int64_t k);
  // forward() of such values.
  Var from_block(const Var& x, std::int64_t k);
  // [n, width], what the classifier takes.
  Var features(const Var& images);
  virtual Var classify(const Var& features) = 0;  // [n, classes]
  // Fits tables of positions to images of this height and width, by the interpolation of the
  // model's publisher. Models without such tables take images of any size.
  virtual void resize_images(const Shape& /*size*/) {}
  Var forward(const Var& images) final { return classify(features(images)); }

 protected:
  virtual Var stem(const Var& images) = 0;  // the values in front of block 0
  // Blocks begin to end - 1.
  virtual Var through(const Var& x, std::int64_t begin, std::int64_t end) = 0;
  virtual Var pooled(const Var& x) = 0;  // features() of the values behind the last block
};

// Applies the modules begin to end - 1 of those that the stages hold, one stage behind the other. A
// stage that is applied whole is called as one module.
Var through_stages(std::span<Sequential* const> stages, Var x, std::int64_t begin,
                   std::int64_t end);

}  // namespace sotto::nn
