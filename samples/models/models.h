// The networks that the samples train.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/layers.h"

namespace sotto::models {

// The names of the nonlinearities for MnistNetwork.
std::vector<std::string> activation_names();

// The network of the literature on private training for grey images [n, 1, 28, 28], with 26,010
// parameters: two convolutions, each followed by overlapping max pooling, and two dense layers
// (Papernot et al. 2021, table 1). Returns logits [n, 10].
class MnistNetwork final : public nn::Module {
 public:
  // Initial values come from nn::init_random(). Throws std::invalid_argument for a name that is not
  // in activation_names().
  explicit MnistNetwork(const std::string& activation = "tanh");
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override;

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear dense1_, dense2_;
  std::function<Var(const Var&)> activation_;
};

// Linear layers of the given widths, the first of which is the input's, with ReLU between them if
// `nonlinear`. Throws std::invalid_argument for fewer than two widths.
nn::Sequential perceptron(const std::vector<std::int64_t>& widths, bool nonlinear = true);

// A classifier of [n, t] words, i64 ids below `words`: embedding with learned positions, encoder
// blocks, the mean over positions, and a linear layer (Vaswani et al. 2017, with normalisation
// first). Returns logits [n, classes].
struct TransformerOptions {
  std::int64_t words = 1000;
  std::int64_t length = 64;  // maximum words of an input
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t blocks = 2;
  std::int64_t classes = 2;
  double dropout = 0;
};

class Transformer final : public nn::Module {
 public:
  explicit Transformer(const TransformerOptions& options = {});
  Var forward(const Var& ids) override;
  void visit(const nn::Visitor& visitor) override;

 private:
  nn::Embedding words_;
  nn::PositionalEmbedding positions_;
  nn::Sequential blocks_;
  nn::LayerNorm norm_;
  nn::Linear classifier_;
};

}  // namespace sotto::models
