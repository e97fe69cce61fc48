#include "nn/predict.h"

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "core/devices.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

nn::Sequential network() {
  nn::manual_seed(5);
  return nn::Sequential{nn::Flatten(), nn::Linear(784, 20), nn::Tanh(), nn::Dropout(0.5),
                        nn::Linear(20, 10)};
}

struct Failing final : nn::Module {
  nn::Linear inner{784, 2};
  Var forward(const Var& x) override {
    const Var y = inner(reshape(x, {-1, 784}));
    fail("the third batch");
    return y;
  }
  void visit(const nn::Visitor& visitor) override { visitor("inner", inner); }
};

}  // namespace

TEST_CASE("predictions are the model's results without dropout, whatever the batch") {
  nn::Sequential model = network();
  const Dataset data = make_digits(50, 1);
  Tape tape({.training = false});
  const std::vector<float> expected = model(tape.input(data.inputs)).value().to_vector<float>();
  for (const std::int64_t batch : {1, 7, 50, 1000}) {
    const Tensor y = nn::predict(model, data.inputs, batch);
    CHECK(y.shape() == Shape{50, 10});
    CHECK(y.contiguous());
    const std::vector<float> got = y.to_vector<float>();
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-5));
  }
  CHECK(nn::predict(model, data.inputs).to_vector<float>() == expected);
}

TEST_CASE("predictions of a model on any device are on the CPU, and the same", "[gpu]") {
  const Dataset data = make_digits(20, 1);
  nn::Sequential model = network();
  const std::vector<float> expected = nn::predict(model, data.inputs).to_vector<float>();
  const auto forward = [&](Tape& tape, const Dataset& batch) {
    return model(tape.input(batch.inputs));
  };
  for (const DeviceInfo& info : devices()) {
    CAPTURE(name(info.device));
    model.to(info.device);
    for (const Tensor& y :
         {nn::predict(model, data.inputs, 8), nn::predict(model, data, forward)}) {
      CHECK(y.device() == cpu);
      const std::vector<float> got = y.to_vector<float>();
      for (std::size_t k = 0; k < got.size(); ++k)
        CHECK(got[k] == Approx(expected[k]).margin(1e-4));
    }
  }
}

TEST_CASE("a prediction leaves the model as it was, also when it throws") {
  nn::Sequential model = network();
  model[1].freeze();
  const Dataset data = make_digits(5, 1);
  const auto trainable = [&] {
    std::vector<bool> all;
    for (const Parameter* parameter : model.parameters()) all.push_back(parameter->trainable);
    return all;
  };
  const std::vector<bool> before = trainable();
  CHECK(before == std::vector<bool>{false, false, true, true});
  nn::predict(model, data.inputs);
  CHECK(trainable() == before);
  CHECK(throws([&] { nn::predict(model, full({2, 3}, 1)); }, "(2, 3)"));
  CHECK(trainable() == before);
  Failing failing;
  CHECK(throws([&] { nn::predict(failing, data.inputs, 2); }, "the third batch"));
  CHECK(failing.inner.weight->trainable);
  CHECK(failing.inner.bias->trainable);
}

TEST_CASE("a prediction keeps nothing for a backward pass") {
  nn::Sequential deep;
  for (int k = 0; k < 12; ++k) {
    deep.add(nn::Linear(256, 256));
    deep.add(nn::Tanh());
  }
  const Tensor x = full({64, 256}, 0.5);
  const std::size_t start = allocator(cpu).statistics().current;
  allocator(cpu).reset_peak();
  nn::predict(deep, x);
  // The input, a result and what is being computed from it; not one for each layer.
  CHECK(allocator(cpu).statistics().peak - start <= 8 * x.bytes());
}

TEST_CASE("a model of several inputs is predicted by what calls it") {
  nn::manual_seed(5);
  nn::EmbeddingBag bag(6, 3, {.mode = nn::BagMode::sum});
  const Dataset data{.inputs = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, {3, 2}),
                     .targets = Tensor::from(std::vector<std::int64_t>{0, 1, 2}, {3}),
                     .fields = {{"weights", Tensor::from({1, 0, 0, 1, 1, 1}, {3, 2}, Dtype::f32)}}};
  const Tensor y = nn::predict(
      bag, data,
      [&](Tape& tape, const Dataset& batch) {
        return bag.forward(tape.input(batch.inputs), tape.input(batch.field("weights")));
      },
      2);
  const Tensor& table = bag.weight->value;
  CHECK(y[0].to_vector<float>() == table[0].to_vector<float>());
  CHECK(y[1].to_vector<float>() == table[3].to_vector<float>());
  CHECK(y[2].to_vector<float>() == add(table[4], table[5]).to_vector<float>());
}

TEST_CASE("the accuracy is the share of targets at the largest output") {
  const Tensor outputs = Tensor::from({1, 2, 3, 0, 5, 4, 9, 9, 0, 0, 0, 1}, {4, 3}, Dtype::f32);
  const auto targets = [](std::vector<std::int64_t> values) {
    return Tensor::from(values, {std::ssize(values)});
  };
  CHECK(nn::accuracy(outputs, targets({2, 1, 0, 2})) == 1);
  CHECK(nn::accuracy(outputs, targets({2, 2, 1, 0})) == 0.25);
  CHECK(throws([&] { nn::accuracy(outputs, targets({1, 2})); }, "outputs (4, 3) for targets (2)"));
  CHECK(throws([&] { nn::accuracy(outputs, outputs); }, "f32"));
  nn::Sequential model = network();
  Dataset data = make_digits(30, 2);
  data.targets = argmax(nn::predict(model, data.inputs));
  CHECK(nn::accuracy(model, data, 8) == 1);
}

TEST_CASE("what has not one row for each sample is no prediction") {
  nn::Sequential model = network();
  const Tensor none = Tensor::empty({0, 1, 28, 28});
  CHECK(throws([&] { nn::predict(model, none); }, "predict: 0 samples"));
  CHECK(throws([&] { nn::predict(model, make_digits(2, 1).inputs, 0); }, "in batches of 0"));
  const Dataset data = make_digits(4, 1);
  const auto transposed = [&](Tape& tape, const Dataset& batch) {
    return transpose(model(tape.input(batch.inputs)), 0, 1);
  };
  CHECK(throws([&] { nn::predict(model, data, transposed); }, "a result (10, 4) for 4 samples"));
}
