// Normalisation with scale and shift: what a GPU is asked for, types, refusals.
// File tags: [gpu]
#include "autograd/check/op_run.h"
#include "nn/functional.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// The launches of work on the pretended GPU.
std::int64_t launches_of(const std::function<void()>& work) {
  const std::int64_t before = pretended_counts()->launches;
  work();
  return pretended_counts()->launches - before;
}

// The launches of going back through a layer with standardised weights.
std::int64_t standardised_launches(Device device, std::int64_t samples) {
  Random random(81);
  Parameter w(random_tensor(random, {6, 8}, Dtype::f32).to(device));
  const Tensor x = random_tensor(random, {samples, 3, 8}, Dtype::f32).to(device);
  Tape tape;
  const Var y = linear(tape.input(x), nn::standardized_weight(tape.use(w)));
  const Var loss = sum_per_sample(square(y));
  PerSampleGradSink sink;
  return launches_of([&] { tape.backward(loss, sink); });
}

// A layer for [n, 8, 6, 4] with weight and bias in f32, on a tape of a precision.
struct Layer {
  Parameter weight, bias;
  explicit Layer(Device device)
      : weight(full({8}, 1.5, Dtype::f32, device)), bias(full({8}, 0.25, Dtype::f32, device)) {}
  Var operator()(const Var& x) {
    return nn::group_norm(x, 2, {x.tape().use(weight), x.tape().use(bias)});
  }
};

// The channels of [n, 8, 6, 4] side by side.
Tensor images(Dtype dtype, Device device) {
  Random random(82);
  return random_tensor(random, {3, 8, 6, 4}, {0, 2, 3, 1}, dtype).to(device);
}

}  // namespace

TEST_CASE("standardised weights take as many launches for many samples as for two") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) {
    CHECK(standardised_launches(device, 20) == standardised_launches(device, 2));
  });
}

TEST_CASE("a normalisation's scale and shift take no launches of their own, nor a copy") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) {
    Layer layer(device);
    const Tensor x = images(Dtype::bf16, device);
    Tape tape({.precision = Dtype::bf16});
    const Var in = tape.input(x, 0, true);
    std::optional<Var> y;
    // Sums, statistics, results.
    CHECK(launches_of([&] { y = layer(in); }) == 3);
    CHECK(y->value().memory_order() == x.memory_order());
    CHECK(y->dtype() == Dtype::bf16);
    const Var loss = sum_per_sample(*y);
    PerSampleGradSink sink;
    const std::int64_t all = launches_of([&] { tape.backward(loss, sink); });
    Tape without({.precision = Dtype::bf16});
    const Var of_input = sum_per_sample(without.input(x, 0, true));
    PerSampleGradSink none;
    // Sums, gradients of weight and bias, what groups need, dx; and the slopes in x's order.
    CHECK(all - launches_of([&] { without.backward(of_input, none); }) == 5);
  });
}

TEST_CASE("weights in f32 scale and shift activations of 16 bits") {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    Layer layer(cpu);
    const Tensor x = images(dtype, cpu);
    const auto rows = [&](Dtype precision, const Tensor& input) {
      Tape tape({.precision = precision});
      const Var y = layer(tape.input(input));
      CHECK(y.dtype() == input.dtype());
      PerSampleGradSink sink;
      tape.backward(sum_per_sample(square(y)), sink);
      return sink.all();
    };
    const auto narrow = rows(dtype, x), wide = rows(Dtype::f32, to_dtype(x, Dtype::f32));
    REQUIRE(narrow.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(narrow[i].second.dtype() == Dtype::f32);
      check_close(to_dtype(narrow[i].second, dtype), values(wide[i].second));
    }
  }
}

TEST_CASE("a weight that depends on samples scales after normalisation") {
  Random random(83);
  const Tensor x = random_tensor(random, {5, 4}, Dtype::f64),
               w = random_tensor(random, {5, 4}, Dtype::f64);
  std::vector<Tensor> results;
  for (const bool apart : {false, true}) {
    Tape tape;
    const Var in = tape.input(x, 0, true), weights = tape.input(w, 0, true),
              weight = mean(weights, {0});
    const Var y = apart ? mul(nn::layer_norm(in, {4}), weight) : nn::layer_norm(in, {4}, {weight});
    SumSink sink;
    tape.backward(sum(square(y)), sink);
    results.insert(results.end(), {y.value(), tape.grad(in), tape.grad(weights)});
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(results[i], results[i + 3]));
}

TEST_CASE("normalisation refuses weights of other sizes and types") {
  Tape tape;
  const Var x = tape.input(zeros({2, 4}));
  CHECK_THROWS_WITH(nn::layer_norm(x, {4}, {tape.constant(zeros({3}))}),
                    "normalisation: weight or bias of shape (3) for an input of shape (2, 4)");
  CHECK_THROWS_WITH(nn::layer_norm(x, {4}, {{}, tape.constant(zeros({4}, Dtype::f64))}),
                    "normalize: dtypes differ: f32 x f64");
}
