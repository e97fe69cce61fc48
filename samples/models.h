// The networks that the samples train.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sotto/nn/layers.h"

namespace sotto::models {

// The names of the nonlinearities that a network can be built with.
std::vector<std::string> activation_names();

// The network for 28x28 grey images [n, 1, 28, 28] of the literature on private training, 26,010
// parameters: two convolutions, each followed by an overlapping maximum, and two dense layers
// (Papernot et al. 2021, table 1). Gives logits [n, 10].
class MnistNetwork final : public nn::Module {
 public:
  // Initial values come from nn::init_random(). Throws std::invalid_argument for a name that is
  // not in activation_names().
  explicit MnistNetwork(const std::string& activation = "tanh");
  Var forward(const Var& x) override;
  void visit(const nn::Visitor& visitor) override;

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear dense1_, dense2_;
  std::function<Var(const Var&)> activation_;
};

}  // namespace sotto::models
