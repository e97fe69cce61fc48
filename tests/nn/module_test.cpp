#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/ops/reductions.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// Standard normal values, a function of the shape.
Tensor values(const Shape& shape, Dtype dtype = Dtype::f32) {
  PublicRandom random(7, static_cast<std::uint64_t>(shape.numel()));
  return to_dtype(nn::random_normal(shape, 0, 1, random), dtype);
}

Tensor output(nn::Module& module, const Tensor& x) {
  Tape tape;
  return module(tape.input(x)).value();
}

// The network for 28 x 28 digits in the literature after Abadi et al. 2016.
nn::Sequential digits_network() {
  return nn::Sequential{nn::Conv2d(1, 16, 8, {.stride = {2}, .padding = {3}}),
                        nn::Tanh(),
                        nn::MaxPool2d(2, 1),
                        nn::Conv2d(16, 32, 4, {.stride = {2}}),
                        nn::Tanh(),
                        nn::MaxPool2d(2, 1),
                        nn::Flatten(),
                        nn::Linear(512, 32),
                        nn::Tanh(),
                        nn::Linear(32, 10)};
}

std::vector<std::string> names(nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : module.named_parameters()) all.push_back(name);
  return all;
}

// A user's module of modules, one of which is used twice.
struct Block : nn::Module {
  nn::Conv2d conv1{2, 2, 3, {.padding = {1}}, false};
  nn::GroupNorm norm{1, 2};
  std::unique_ptr<Parameter> scale = std::make_unique<Parameter>(full({1}, 0.5));

  Var forward(const Var& x) override { return x + norm(conv1(x)) * x.tape().use(*scale); }
  void visit(const nn::Visitor& visitor) override {
    visitor("conv1", conv1);
    visitor("norm", norm);
    visitor("again", conv1);
    visitor("scale", scale);
  }
};

// y = (x - mean) / sqrt(variance + eps) over each run of `width` adjacent values.
std::vector<double> normalized(const Tensor& x, std::int64_t width, double eps, bool centered) {
  std::vector<double> y = x.to_vector<double>();
  const auto w = static_cast<std::size_t>(width);
  for (std::size_t row = 0; row < y.size(); row += w) {
    double mean = 0;
    double square = 0;
    for (std::size_t i = 0; centered && i < w; ++i) mean += y[row + i] / static_cast<double>(w);
    for (std::size_t i = 0; i < w; ++i) {
      square += (y[row + i] - mean) * (y[row + i] - mean) / static_cast<double>(w);
    }
    for (std::size_t i = 0; i < w; ++i) y[row + i] = (y[row + i] - mean) / std::sqrt(square + eps);
  }
  return y;
}

void check_close(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> values = got.to_vector<double>();
  REQUIRE(values.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(values[i] == Approx(want[i]).epsilon(1e-12).margin(1e-12));
  }
}

}  // namespace

TEST_CASE("the network for digits has 26,010 parameters and ten outputs") {
  nn::Sequential model = digits_network();
  CHECK(model.parameter_count() == 26010);
  CHECK(output(model, values({3, 1, 28, 28})).shape() == Shape{3, 10});
}

TEST_CASE("parameters are named by the path to them") {
  nn::Sequential model = digits_network();
  CHECK(names(model) == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias",
                                                 "7.weight", "7.bias", "9.weight", "9.bias"});
  nn::Sequential nested{Block(), nn::Sequential{nn::Linear(4, 2, {.bias = false})}};
  CHECK(names(nested) == std::vector<std::string>{"0.conv1.weight", "0.norm.weight", "0.norm.bias",
                                                  "0.scale", "1.0.weight"});
}

TEST_CASE("a module met twice counts once") {
  Block block;
  CHECK(block.parameter_count() == 2 * 2 * 3 * 3 + 2 + 2 + 1);
  CHECK(block.parameters().size() == 4);
}

TEST_CASE("parameters stay where they are when a module moves") {
  nn::Linear layer(3, 2);
  const Parameter* weight = layer.weight.get();
  nn::Sequential model{std::move(layer)};
  nn::Sequential moved = std::move(model);
  CHECK(moved.parameters()[0] == weight);
  CHECK(moved[0].parameters()[0] == weight);
  CHECK(throws([&] { moved[1]; }, "sequential: no module 1 among 1"));
}

TEST_CASE("frozen parameters get no gradient") {
  nn::Sequential model{nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 1)};
  model[0].freeze();
  const auto received = [&] {
    Tape tape;
    SumSink sink;
    tape.backward(model(tape.input(values({5, 3}))), sink);
    return sink.gradients().size();
  };
  CHECK(received() == 2);
  model.unfreeze();
  CHECK(received() == 4);
}

TEST_CASE("a module's parameters change their type together") {
  nn::Sequential model = digits_network();
  const std::vector<double> before =
      to_dtype(output(model, values({2, 1, 28, 28})), Dtype::f64).to_vector<double>();
  model.to(Dtype::f64);
  for (const Parameter* parameter : model.parameters()) {
    CHECK(parameter->value.dtype() == Dtype::f64);
  }
  const std::vector<double> after =
      output(model, values({2, 1, 28, 28}, Dtype::f64)).to_vector<double>();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i] == Approx(after[i]).margin(1e-5));
  }
  CHECK(throws([&] { model.to(Dtype::i64); }, "module: parameters cannot be i64"));
}

TEST_CASE("a linear layer multiplies and adds") {
  nn::Linear layer(2, 2);
  layer.weight->value = Tensor::from({1, 2, 3, 4}, {2, 2}, Dtype::f64);
  layer.bias->value = Tensor::from({10, 20}, {2}, Dtype::f64);
  check_close(output(layer, Tensor::from({1, -1}, {1, 2}, Dtype::f64)), {9, 19});
  CHECK(nn::Linear(2, 2, {.bias = false}).parameter_count() == 4);
  CHECK(throws([] { nn::Linear(0, 2); }, "Linear: 0 inputs"));
}

TEST_CASE("convolutions and pools have the shapes that their options ask for") {
  nn::Conv1d one(4, 6, 3, {.stride = {2}, .groups = 2});
  CHECK(one.weight->value.shape() == Shape{6, 2, 3});
  CHECK(output(one, values({2, 4, 9})).shape() == Shape{2, 6, 4});
  nn::Conv2d two(1, 3, {3, 5}, {.same = true});
  CHECK(output(two, values({2, 1, 8, 7})).shape() == Shape{2, 3, 8, 7});
  nn::Conv2d halved(1, 3, 5, {.stride = {2}, .same = true});
  CHECK(output(halved, values({2, 1, 8, 7})).shape() == Shape{2, 3, 4, 4});
  nn::Conv3d three(2, 2, 2);
  CHECK(output(three, values({1, 2, 3, 4, 5})).shape() == Shape{1, 2, 2, 3, 4});
  nn::MaxPool1d max_pool(3);
  CHECK(output(max_pool, values({2, 4, 9})).shape() == Shape{2, 4, 3});
  nn::AvgPool2d avg_pool({.kernel = {2, 1}, .stride = {1}});
  CHECK(output(avg_pool, values({2, 1, 8, 7})).shape() == Shape{2, 1, 7, 7});
  nn::AdaptiveAvgPool2d adaptive(1);
  CHECK(output(adaptive, values({2, 3, 8, 7})).shape() == Shape{2, 3, 1, 1});
}

TEST_CASE("padding \"same\" with a stride depends on the size, and the odd zero comes last") {
  const Tensor ones = full({1, 1, 3}, 1, Dtype::f64);
  const auto sums = [&](const std::vector<double>& x) {
    Tape tape;
    const Tensor row = Tensor::from(x, {1, 1, static_cast<std::int64_t>(x.size())});
    const ConvOptions halving{.stride = {2}, .same = true};
    return conv(tape.input(row), tape.constant(ones), {}, halving).value().to_vector<double>();
  };
  CHECK(sums({1, 2, 3, 4}) == std::vector<double>{6, 7});
  CHECK(sums({1, 2, 3, 4, 5}) == std::vector<double>{3, 9, 9});
}

TEST_CASE("layers refuse inputs and options that do not fit") {
  nn::Conv2d layer(1, 3, 3);
  CHECK(throws([&] { output(layer, values({1, 8, 8})); }, "Conv2d: input (1, 8, 8)"));
  CHECK(throws([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }, "Conv2d: 3 channels to 4 in 2 groups"));
  CHECK(throws([] { nn::Conv2d(3, 4, {1, 2, 3}); }, "for 2 spatial axes"));
  CHECK(throws([] { nn::GroupNorm(3, 4); }, "GroupNorm: 3 groups of 4"));
  CHECK(throws([] { nn::Dropout(1); }, "Dropout: rate 1"));
  nn::LayerNorm norm({3, 4});
  CHECK(throws([&] { output(norm, values({2, 3, 5})); }, "layer_norm: normalized shape (3, 4)"));
  nn::GroupNorm group(1, 4);
  CHECK(throws([&] { output(group, values({2, 3, 5})); }, "without 4 channels"));
}

TEST_CASE("normalisation layers agree with plain loops") {
  const Tensor x = values({2, 4, 3, 2}, Dtype::f64);
  nn::GroupNorm group(2, 4);
  group.to(Dtype::f64);
  check_close(output(group, x), normalized(x, 12, 1e-5, true));
  nn::InstanceNorm2d instance(4, {.eps = 1e-3});
  CHECK(instance.parameter_count() == 0);
  check_close(output(instance, x), normalized(x, 6, 1e-3, true));
  nn::LayerNorm layer({3, 2}, {.affine = false});
  check_close(output(layer, x), normalized(x, 6, 1e-5, true));
  nn::RMSNorm rms(2, {.eps = 1e-2});
  rms.to(Dtype::f64);
  check_close(output(rms, x), normalized(x, 2, 1e-2, false));
}

TEST_CASE("normalisation scales and shifts each channel") {
  const Tensor x = values({2, 4, 3}, Dtype::f64);
  nn::GroupNorm layer(2, 4);
  layer.to(Dtype::f64);
  layer.weight->value = Tensor::from({1, 2, 3, 4}, {4}, Dtype::f64);
  layer.bias->value = Tensor::from({10, 20, 30, 40}, {4}, Dtype::f64);
  std::vector<double> want = normalized(x, 6, 1e-5, true);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double channel = 1 + static_cast<double>(i / 3 % 4);
    want[i] = want[i] * channel + 10 * channel;
  }
  check_close(output(layer, x), want);
}

TEST_CASE("a layer that standardises shifts and scales each column, and is not trained") {
  const Tensor x = values({3, 2, 2}, Dtype::f64);
  nn::Standardize layer(2);
  layer.to(Dtype::f64);
  CHECK(output(layer, x).to_vector<double>() == x.to_vector<double>());
  layer.mean->value = Tensor::from({1, 2}, {2}, Dtype::f64);
  layer.deviation->value = Tensor::from({4, 0.5}, {2}, Dtype::f64);
  std::vector<double> want = x.to_vector<double>();
  for (std::size_t i = 0; i < want.size(); ++i)
    want[i] = i / 2 % 2 == 0 ? (want[i] - 1) / 4 : (want[i] - 2) / 0.5;
  check_close(output(layer, x), want);
  CHECK_FALSE(layer.mean->trainable);
  CHECK_FALSE(layer.deviation->trainable);
  CHECK(throws([&] { output(layer, values({2, 3})); }, "Standardize: input (2, 3) without 2"));
  CHECK(throws([] { nn::Standardize(0); }, "Standardize: 0 columns"));
}

TEST_CASE("a block of convolution and normalisation keeps samples apart") {
  Block block;
  Tape apart({.private_data = true});
  CHECK(block(apart.input(values({3, 2, 4, 4}))).samples().axis() == 0);
  Tape tape;
  PerSampleGradSink sink;
  tape.backward(sum_per_sample(block(tape.input(values({3, 2, 4, 4})))), sink);
  CHECK(sink.rows(*block.norm.weight).shape() == Shape{3, 2});
  CHECK(sink.rows(*block.scale).shape() == Shape{3, 1});
}

TEST_CASE("layer normalisation leaves the sample axis where it is") {
  nn::LayerNorm layer(4);
  Tape tape;
  const Var y = layer(tape.input(values({5, 3, 4}), 1));
  CHECK(y.samples().axis() == 1);
}

TEST_CASE("an embedding looks rows up and starts its padding at zero") {
  nn::Embedding layer(5, 3, {.padding = 2});
  const Tensor y = output(layer, Tensor::from(std::vector<std::int64_t>{4, 2}, {1, 2}));
  REQUIRE(y.shape() == Shape{1, 2, 3});
  const std::vector<float> row = layer.weight->value.select(0, 4).to_vector<float>();
  CHECK(y.select(1, 0).to_vector<float>() == row);
  CHECK(y.select(1, 1).to_vector<float>() == std::vector<float>(3, 0));
  CHECK(row != std::vector<float>(3, 0));
  CHECK(throws([] { nn::Embedding(5, 3, {.padding = 5}); },
               "Embedding: padding 5 of a table of 5 rows"));
}

TEST_CASE("activations are their functions, with the customary constants") {
  const Tensor x = Tensor::from({-3, -0.5, 0.5, 8}, {1, 4}, Dtype::f64);
  nn::Relu relu;
  check_close(output(relu, x), {0, 0, 0.5, 8});
  nn::LeakyRelu leaky;
  check_close(output(leaky, x), {-0.03, -0.005, 0.5, 8});
  nn::Relu6 relu6;
  check_close(output(relu6, x), {0, 0, 0.5, 6});
  nn::Hardtanh hardtanh;
  check_close(output(hardtanh, x), {-1, -0.5, 0.5, 1});
  nn::Elu elu(2);
  check_close(output(elu, x), {2 * std::expm1(-3), 2 * std::expm1(-0.5), 0.5, 8});
  nn::Softplus softplus;
  check_close(output(softplus, x), {std::log1p(std::exp(-3)), std::log1p(std::exp(-0.5)),
                                    std::log1p(std::exp(0.5)), std::log1p(std::exp(8))});
}

// Checks a layer without constants against its formula.
template <class Layer>
void check_formula(double (*formula)(double)) {
  const std::vector<double> values{-7, -2, -0.5, 0.3, 2.5, 9};
  Layer layer;
  std::vector<double> expected;
  for (const double value : values) expected.push_back(formula(value));
  check_close(output(layer, Tensor::from(values, {1, std::ssize(values)})), expected);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST_CASE("activations without constants are the published formulas") {
  check_formula<nn::Selu>([](double x) {
    return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
  });
  check_formula<nn::Gelu>([](double x) { return x / 2 * std::erfc(-x / std::sqrt(2)); });
  check_formula<nn::GeluTanh>([](double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  });
  check_formula<nn::Sigmoid>(logistic);
  check_formula<nn::LogSigmoid>([](double x) { return -std::log1p(std::exp(-x)); });
  check_formula<nn::Silu>([](double x) { return x * logistic(x); });
  check_formula<nn::Mish>([](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  check_formula<nn::Tanh>([](double x) { return std::tanh(x); });
  check_formula<nn::Tanhshrink>([](double x) { return x - std::tanh(x); });
  check_formula<nn::Softsign>([](double x) { return x / (1 + std::abs(x)); });
  check_formula<nn::Hardsigmoid>([](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); });
  check_formula<nn::Hardswish>([](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
}

TEST_CASE("dropout acts in training only") {
  nn::Dropout layer(0.5);
  const Tensor x = full({4, 50}, 1);
  Tape training;
  Tape evaluation({.training = false});
  const std::vector<float> kept = layer(training.input(x)).value().to_vector<float>();
  CHECK(std::count(kept.begin(), kept.end(), 0) + std::count(kept.begin(), kept.end(), 2) == 200);
  CHECK(std::count(kept.begin(), kept.end(), 0) > 0);
  CHECK(layer(evaluation.input(x)).value().to_vector<float>() == std::vector<float>(200, 1));
}
