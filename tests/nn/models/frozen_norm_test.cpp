// Batch norms of models that come trained.
#include "nn/models/frozen_norm.h"

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/check/check_layer.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/models/efficientnet.h"
#include "nn/models/resnet.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::StoredNorms;

namespace {

constexpr testing::CheckOptions few{.instances = 4};

std::function<Tensor(PublicRandom&)> images(std::int64_t channels, std::int64_t side) {
  return [=](PublicRandom& random) {
    return uniform_values(random, {draw(random, 1, 3), channels, side, side});
  };
}

// Fills parameters and statistics with values that differ from those at the start.
void randomize(nn::Module& module, PublicRandom& random) {
  if (auto* const norm = dynamic_cast<nn::FrozenBatchNorm*>(&module)) {
    const Shape shape = norm->running_mean.shape();
    norm->running_mean = to_dtype(uniform_values(random, shape), Dtype::f32);
    norm->running_var = to_dtype(uniform_values(random, shape, 0.5, 2), Dtype::f32);
    norm->weight->value = to_dtype(uniform_values(random, shape, 0.5, 2), Dtype::f32);
    norm->bias->value = to_dtype(uniform_values(random, shape), Dtype::f32);
  }
  module.visit(
      nn::Visitor([](const std::string&, Parameter&) {},
                  [&](const std::string&, nn::Module& child) { randomize(child, random); }));
}

nn::EfficientNet small_efficientnet() {
  nn::manual_seed(5);
  nn::EfficientNet net({.stem = 4,
                        .stages = {{{.in = 4, .out = 4, .inner = 4}},
                                   {{.in = 4, .out = 6, .inner = 8, .kernel = 5, .stride = 2},
                                    {.in = 6, .out = 6, .inner = 12}}},
                        .features = 8,
                        .classes = 3});
  PublicRandom random(6);
  randomize(net, random);
  return net;
}

Tensor logits(nn::Module& net, const Tensor& x) {
  Tape tape;
  return net(tape.input(x)).value();
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor difference = unary(unary_index<functors::Abs>, sub(a, b));
  return reduce(Reduction::max, difference, {}, false).item();
}

std::vector<std::string> names(nn::Module& net) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : net.named_parameters()) all.push_back(name);
  return all;
}

}  // namespace

TEST_CASE("a batch norm with frozen statistics obeys the laws of gradients and samples") {
  PublicRandom random(3);
  nn::FrozenBatchNorm norm(4);
  randomize(norm, random);
  CHECK_NOTHROW(testing::check_layer(norm, images(4, 3), few));
  Tape tape;
  const Tensor x = uniform_values(random, {2, 4, 3, 3});
  norm.to(Dtype::f64);
  const Tensor y = norm(tape.input(x)).value();
  const auto at = [](const Tensor& v, std::int64_t c) { return to_dtype(v, Dtype::f64).at({c}); };
  for (std::int64_t c = 0; c < 4; ++c) {
    const double centred = x.at({1, c, 2, 0}) - at(norm.running_mean, c);
    const double expected =
        centred / std::sqrt(at(norm.running_var, c) + 1e-5) * at(norm.weight->value, c) +
        at(norm.bias->value, c);
    CHECK(y.at({1, c, 2, 0}) == Approx(expected).epsilon(1e-12));
  }
  CHECK(throws([] { nn::FrozenBatchNorm(0); }, "FrozenBatchNorm: 0 channels"));
  CHECK(throws([&] { norm(tape.input(zeros({2, 3, 1, 1}, Dtype::f64))); }, "without 4 channels"));
}

TEST_CASE("networks with frozen, folded and group norms treat each sample as it is alone") {
  for (const StoredNorms norms : {StoredNorms::frozen, StoredNorms::folded, StoredNorms::group}) {
    nn::EfficientNet net = small_efficientnet();
    nn::convert_batch_norms(net, norms, 2);
    CHECK_NOTHROW(testing::check_layer(net, images(3, 8), few));
  }
}

TEST_CASE("another sample's picture changes no bit of a sample's gradient") {
  nn::EfficientNet net = small_efficientnet();
  PublicRandom random(8);
  const Tensor x = to_dtype(uniform_values(random, {4, 3, 8, 8}), Dtype::f32);
  const auto rows = [&](const Tensor& batch) {
    Tape tape;
    PerSampleGradSink sink;
    tape.backward(cross_entropy(net(tape.input(batch)), zeros({4}, Dtype::i64)), sink);
    std::vector<double> all;
    for (Parameter* parameter : net.parameters()) {
      const Tensor first = to_dtype(sink.rows(*parameter).slice(0, 0, 1), Dtype::f64);
      for (const double v : first.to_vector<double>()) all.push_back(v);
    }
    return all;
  };
  Tensor changed = clone(x);
  copy_into(scale(x.slice(0, 3, 4), -7), changed.slice(0, 3, 4));
  CHECK(rows(x) == rows(changed));
}

TEST_CASE("folding leaves the logits, and unfolding the layout of the original") {
  PublicRandom random(9);
  const Tensor x = to_dtype(uniform_values(random, {2, 3, 8, 8}), Dtype::f32);
  nn::EfficientNet net = small_efficientnet();
  const Tensor original = logits(net, x);
  const std::vector<std::string> layout = names(net);
  nn::convert_batch_norms(net, StoredNorms::folded);
  const Tensor folded = logits(net, x);
  CHECK(largest_difference(folded, original) < 1e-5);
  CHECK(names(net) != layout);
  CHECK(names(net)[1] == "_conv_stem.bias");
  {
    const nn::UnfoldedBatchNorms unfolded(net);
    CHECK(names(net) == layout);
    CHECK(largest_difference(logits(net, x), original) < 1e-5);
  }
  CHECK(largest_difference(logits(net, x), folded) == 0);
}

TEST_CASE("group norms replace batch norms with their weights and as many groups as fit") {
  nn::EfficientNet net = small_efficientnet();
  const Tensor bias = net.named_parameters()[2].second->value;
  nn::convert_batch_norms(net, StoredNorms::group, 3);
  CHECK(net.named_parameters()[2].first == "_bn0.bias");
  CHECK(largest_difference(net.named_parameters()[2].second->value, bias) == 0);
  CHECK(names(net) == names(*std::make_unique<nn::EfficientNet>(small_efficientnet())));
}

TEST_CASE("a batch norm that follows no convolution is not folded") {
  nn::Sequential net{nn::Relu(), nn::FrozenBatchNorm(2)};
  CHECK(throws([&] { nn::convert_batch_norms(net, StoredNorms::folded); },
               "1 does not follow a convolution"));
  nn::Sequential other{nn::Conv2d(2, 3, 1), nn::FrozenBatchNorm(2)};
  CHECK(throws([&] { nn::convert_batch_norms(other, StoredNorms::folded); },
               "1 has 2 channels, not 3"));
  nn::Sequential negative{nn::Conv2d(2, 1, 1), nn::FrozenBatchNorm(1)};
  dynamic_cast<nn::FrozenBatchNorm&>(negative[1]).running_var = full({1}, -1);
  CHECK(throws([&] { nn::convert_batch_norms(negative, StoredNorms::folded); }, "variance of -1"));
}
