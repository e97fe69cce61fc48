// Features that are the inputs of a model's layers.
#include "nn/models/layer_means.h"

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/resnet.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<double> features_of(nn::Module& model, const std::string& pattern, const Tensor& x) {
  const nn::LayerMeans layers(model, pattern);
  Tape tape({.training = false});
  return layers([&] { model(tape.input(x)); }).value().to_vector<double>();
}

// Roots less their average, over their norm times the root of the number of layers.
std::vector<double> scaled(std::vector<double> means, double layers) {
  double sum = 0, squares = 0;
  for (double& value : means) {
    value = std::copysign(std::sqrt(std::abs(value)), value);
    sum += value;
  }
  for (double& value : means) {
    value -= sum / static_cast<double>(means.size());
    squares += value * value;
  }
  for (double& value : means) value /= std::sqrt(squares * layers);
  return means;
}

}  // namespace

TEST_CASE("features are roots of means over positions, scaled for each layer") {
  nn::Sequential model{nn::Relu(), nn::Flatten(), nn::Linear(4, 2)};
  model.to(Dtype::f64);
  const Tensor x = Tensor::from(std::vector<double>{1, 3, -4, -4}, {1, 2, 1, 2});
  std::vector<double> expected = scaled({2, -4}, 2);
  for (const double value : scaled({1, 3, 0, 0}, 2)) expected.push_back(value);
  const std::vector<double> found = features_of(model, "0|2", x);
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == Approx(expected[i]).margin(1e-9));
}

TEST_CASE("layers deep in a network are found by their paths, and a picture's row is its own") {
  nn::ResNet net({.blocks = {1, 2}, .width = 4, .classes = 3});
  net.to(Dtype::f64);
  const nn::LayerMeans layers(net, "layer2\\.[01]\\.conv2|fc");
  CHECK(layers.paths() == std::vector<std::string>{"layer2.0.conv2", "layer2.1.conv2", "fc"});
  PublicRandom random(4);
  const Tensor x = to_dtype(nn::random_normal({3, 3, 32, 32}, 0, 1, random), Dtype::f64);
  const std::vector<double> all = features_of(net, "layer2\\.[01]\\.conv2|fc", x);
  REQUIRE(all.size() == 3 * 24);
  const auto one = features_of(net, "layer2\\.[01]\\.conv2|fc", x.slice(0, 1, 2));
  double squares = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(all[24 + i] == Approx(one[i]).margin(1e-9));
    squares += one[i] * one[i];
  }
  CHECK(squares == Approx(1));
}

TEST_CASE("a pattern that fits no layer, and a layer that is not called, are refused") {
  nn::Sequential model{nn::Relu(), nn::Linear(4, 2)};
  CHECK(throws([&] { nn::LayerMeans(model, "conv"); }, "LayerMeans: \"conv\" fits no layer"));
  const nn::LayerMeans layers(model, "1");
  CHECK(throws([&] { layers([] {}); }, "LayerMeans: the model does not call 1"));
}
