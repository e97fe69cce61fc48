#include "samples/models/models.h"

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "nn/init.h"

namespace sotto::models {

namespace {

struct NamedActivation {
  const char* name;
  Var (*function)(const Var&);
};

constexpr NamedActivation activations[] = {
    {"tanh", [](const Var& x) { return tanh(x); }},
    {"relu", [](const Var& x) { return relu(x); }},
    {"elu", [](const Var& x) { return elu(x); }},
    {"selu", [](const Var& x) { return selu(x); }},
    {"gelu", [](const Var& x) { return gelu(x); }},
    {"silu", [](const Var& x) { return silu(x); }},
    {"mish", [](const Var& x) { return mish(x); }},
    {"sigmoid", [](const Var& x) { return sigmoid(x); }},
    {"softsign", [](const Var& x) { return softsign(x); }},
};

std::function<Var(const Var&)> parse_activation(const std::string& wanted) {
  for (const auto& [name, function] : activations) {
    if (wanted == name) return function;
  }
  fail(fmt::format("MnistNetwork: no activation is called {}", wanted));
}

}  // namespace

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const NamedActivation& activation : activations) names.emplace_back(activation.name);
  return names;
}

MnistNetwork::MnistNetwork(const std::string& activation)
    : conv1_(1, 16, 8, {.stride = {2}, .padding = {3}}),
      conv2_(16, 32, 4, {.stride = {2}}),
      dense1_(32 * 4 * 4, 32),
      dense2_(32, 10),
      activation_(parse_activation(activation)) {}

Var MnistNetwork::forward(const Var& x) {
  const PoolOptions overlapping{.kernel = {2}, .stride = {1}};
  Var y = max_pool(activation_(conv1_(x)), overlapping);  // [n, 16, 13, 13]
  y = max_pool(activation_(conv2_(y)), overlapping);      // [n, 32, 4, 4]
  return dense2_(activation_(dense1_(flatten(y, 1, -1))));
}

void MnistNetwork::visit(const nn::Visitor& visitor) {
  visitor("conv1", conv1_);
  visitor("conv2", conv2_);
  visitor("dense1", dense1_);
  visitor("dense2", dense2_);
}

nn::Sequential perceptron(const std::vector<std::int64_t>& widths, bool nonlinear) {
  check(widths.size() >= 2, "perceptron: {} widths", widths.size());
  nn::Sequential layers;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0 && nonlinear) layers.add(nn::Relu());
    layers.add(nn::Linear(widths[i], widths[i + 1], {.bias = nonlinear}));
  }
  return layers;
}

Transformer::Transformer(const TransformerOptions& options)
    : words_(options.words, options.width),
      positions_(options.length, options.width),
      norm_(options.width),
      classifier_(options.width, options.classes) {
  constexpr std::int64_t widening = 4;
  for (std::int64_t block = 0; block < options.blocks; ++block) {
    blocks_.add(nn::TransformerEncoderLayer(options.width, options.heads,
                                            {.dim_feedforward = widening * options.width,
                                             .dropout = options.dropout,
                                             .activation = nn::FeedForwardActivation::gelu,
                                             .batch_first = true,
                                             .norm_first = true}));
  }
}

Var Transformer::forward(const Var& ids) {
  return classifier_(mean(norm_(blocks_(positions_(words_(ids)))), {1}));
}

void Transformer::visit(const nn::Visitor& visitor) {
  visitor("words", words_);
  visitor("positions", positions_);
  visitor("blocks", blocks_);
  visitor("norm", norm_);
  visitor("classifier", classifier_);
}

}  // namespace sotto::models
