// On a GPU the parameters of a model are converted to 16 bits together, and never from old values.
// File tags: [gpu]
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr TapeOptions narrow{.precision = Dtype::bf16};

// Linear layers, of which a call uses those that are chosen, after `before`.
class Chosen final : public nn::Module {
 public:
  explicit Chosen(int layers) {
    nn::manual_seed(3);
    for (int k = 0; k < layers; ++k) layers_.push_back(std::make_unique<nn::Linear>(4, 4));
    for (int k = 0; k < layers; ++k) chosen.push_back(k);
  }
  Var forward(const Var& x) override {
    before();
    Var y = x;
    for (const int k : chosen) y = (*layers_[static_cast<std::size_t>(k)])(y);
    return y;
  }
  void visit(const nn::Visitor& visitor) override {
    for (std::size_t k = 0; k < layers_.size(); ++k) visitor(std::to_string(k), *layers_[k]);
  }

  std::vector<int> chosen;
  std::function<void()> before = [] {};

 private:
  std::vector<std::unique_ptr<nn::Linear>> layers_;
};

Tensor inputs(Device device) {
  Random random(4);
  return random_tensor(random, {5, 4}, {0, 1}, Dtype::f32).to(device);
}

// The result, and the gradients of its sum.
std::vector<double> step(nn::Module& model, Device device, const TapeOptions& options = narrow) {
  Tape tape(options);
  const Var y = model(tape.input(inputs(device)));
  std::vector<double> all = values(y.value());
  SumSink sink;
  tape.backward(sum_per_sample(y), sink);
  for (const auto& [parameter, gradient] : sink.gradients())
    std::ranges::copy(values(gradient), std::back_inserter(all));
  return all;
}

void double_values(nn::Module& model) {
  for (const Parameter* parameter : model.parameters())
    copy_into(scale(parameter->value, 2), parameter->value);
}

}  // namespace

TEST_CASE("a model's second call converts all parameters in one launch, to the same values") {
  for_each_gpu([](Device device) {
    Chosen model(6), twin(6);
    model.to(device);
    twin.to(device);
    const std::vector<double> first = step(model, device);
    CHECK(step(model, device) == first);
    double_values(model);
    double_values(twin);
    CHECK(step(model, device) == step(twin, device));
    if (!pretended_counts()) return;
    Chosen fresh(6);
    fresh.to(device);
    const auto once = [&] { step(fresh, device); };
    const std::int64_t singly = launches_of(once), together = launches_of(once);
    CHECK(singly - together == 12 - 1);
    CHECK(launches_of(once) == together);
  });
}

TEST_CASE("a parameter that the call before did not use is converted when it is used") {
  for_each_gpu([](Device device) {
    if (!pretended_counts()) return;
    Chosen model(4);
    model.to(device);
    const auto once = [&] {
      Tape tape(narrow);
      model(tape.input(inputs(device)));
    };
    once();
    model.chosen = {0, 1};
    once();
    const std::int64_t two = launches_of(once);
    model.chosen = {0, 2};  // of layer 2 alone two, and those of layer 1 for nothing
    CHECK(launches_of(once) == two + 2);
    CHECK(launches_of(once) == two);
  });
}

TEST_CASE("a value that a model replaces or writes while it runs is the one that is converted") {
  for_each_gpu([](Device device) {
    Chosen model(3), plain(3);
    model.to(device);
    plain.to(device);
    step(model, device);
    double_values(plain);
    model.before = [&] {
      for (Parameter* parameter : model.parameters()) {
        if (&*parameter == model.parameters()[0]) continue;
        parameter->value = scale(parameter->value, 2);
      }
    };
    // A frozen one may be written to.
    model.parameters()[0]->trainable = plain.parameters()[0]->trainable = false;
    const auto replace = model.before;
    model.before = [&] {
      replace();
      const Tensor& value = model.parameters()[0]->value;
      copy_into(scale(value, 2), value);
    };
    CHECK(step(model, device) == step(plain, device));
  });
}

TEST_CASE("two calls on one tape share conversions, and so do the steps after them") {
  for_each_gpu([](Device device) {
    Chosen model(3);
    model.to(device);
    const auto twice = [&] {
      Tape tape(narrow);
      const Var x = tape.input(inputs(device));
      return values((model(x) + model(2.0 * x)).value());
    };
    const std::vector<double> first = twice();
    CHECK(twice() == first);
    if (!pretended_counts()) return;
    const std::int64_t together = launches_of(twice);
    CHECK(launches_of(twice) == together);
    Chosen fresh(3);
    fresh.to(device);
    const auto other = [&] {
      Tape tape(narrow);
      const Var x = tape.input(inputs(device));
      values((fresh(x) + fresh(2.0 * x)).value());
    };
    CHECK(launches_of(other) == together + 5);
  });
}

TEST_CASE("a model computes after a call that failed, in another precision and in segments") {
  for_each_gpu([](Device device) {
    Chosen model(4), plain(4);
    model.to(device);
    plain.to(device);
    const std::vector<double> expected = step(plain, device);
    step(model, device);
    model.before = [] { throw std::runtime_error("on the way"); };
    CHECK_THROWS(step(model, device));
    model.before = [] {};
    CHECK(step(model, device) == expected);
    const std::vector<double> wide = step(plain, device, {});
    CHECK(step(model, device, {}) == wide);
    CHECK(step(model, device) == expected);
    model.set_recomputing(true);
    for (int k = 0; k < 3; ++k) CHECK(step(model, device) == expected);
  });
}

namespace {

// y = x * weight * weight, of a weight in another shape.
class Reshaped final : public nn::Module {
 public:
  Var forward(const Var& x) override {
    const Var narrow = cast(x, Dtype::bf16);
    return narrow * reshape(x.tape().use(*weight), {1, 4}) * reshape(x.tape().use(*other), {1, 4});
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("weight", weight);
    visitor("other", other);
  }
  std::unique_ptr<Parameter> weight =
      std::make_unique<Parameter>(Tensor::from(std::vector<float>{1, 2, 3, 4}, {4}));
  std::unique_ptr<Parameter> other =
      std::make_unique<Parameter>(Tensor::from(std::vector<float>{0.1f, 5, 6, 7}, {2, 2}));
};

}  // namespace

TEST_CASE("parameters that are used in another shape are converted together, too") {
  for_each_gpu([](Device device) {
    Reshaped model;
    model.to(device);
    std::vector<std::vector<double>> results;
    const auto once = [&] { results.push_back(step(model, device)); };
    once();
    once();
    CHECK(results[1] == results[0]);
    if (!pretended_counts()) return;
    Reshaped fresh;
    fresh.to(device);
    const auto other = [&] { step(fresh, device); };
    const std::int64_t singly = launches_of(other);
    CHECK(launches_of(other) == singly - 1);
  });
}
