// Normalisation with scale and shift: what a GPU is asked for, types, refusals.
// File tags: [gpu]
#include "autograd/check/op_run.h"
#include "autograd/sink.h"
#include "nn/functional.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

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

TEST_CASE("a gain of standardised weights is a product within") {
  Random random(85);
  Parameter w(random_tensor(random, {4, 3, 2}, Dtype::f64)),
      gain(random_tensor(random, {4, 1, 1}, Dtype::f64));
  const Tensor x = random_tensor(random, {5, 6}, Dtype::f64);
  std::vector<std::vector<double>> results;
  for (const bool within : {false, true}) {
    Tape tape;
    const Var factor = 2.0 * tape.use(gain);
    const Var y = within ? nn::standardized_weight(tape.use(w), 1e-3, factor)
                         : nn::standardized_weight(tape.use(w), 1e-3) * factor;
    PerSampleGradSink sink;
    tape.backward(sum_per_sample(square(linear(tape.input(x), reshape(y, {4, 6})))), sink);
    results.push_back(values(y.value()));
    for (const Parameter* parameter : {&w, &gain}) {
      for (const auto& [known, rows] : sink.all()) {
        if (known == parameter) results.push_back(values(rows));
      }
    }
  }
  REQUIRE(results.size() == 6);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(results[i].size() == results[i + 3].size());
    for (std::size_t k = 0; k < results[i].size(); ++k)
      CHECK(results[i][k] == Approx(results[i + 3][k]));
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

TEST_CASE("groups of a sample are summed in one order, alone and beside others") {
  // Positions first, frames of clips, images in both orders: where the samples lie among the axes.
  struct Layout {
    Shape shape;
    int samples;
    Shape order;
  };
  const Layout layouts[] = {{{37, 3, 12}, 1, {1, 2, 0}},      {{37, 12, 3}, 2, {2, 1, 0}},
                            {{3, 12, 5, 7}, 0, {0, 1, 2, 3}}, {{3, 5, 7, 12}, 0, {0, 3, 1, 2}},
                            {{5, 3, 7, 12}, 1, {1, 3, 0, 2}}, {{5, 7, 12, 3}, 3, {3, 2, 0, 1}}};
  for (const auto& [shape, samples, order] : layouts) {
    CAPTURE(shape, samples);
    Random random(84);
    const Tensor all = contiguous(random_tensor(random, shape, Dtype::f64));
    const auto first = [&](const Tensor& x) {
      Tape tape;
      const Var y = normalize_groups(permute(tape.input(x, samples), order), 3, 1e-5);
      return values(contiguous(y.value().slice(0, 0, 1)));
    };
    CHECK(first(contiguous(all.slice(samples, 0, 1))) == first(all));
  }
}

TEST_CASE("normalisation refuses weights of other sizes and types") {
  Tape tape;
  const Var x = tape.input(zeros({2, 4}));
  CHECK_THROWS_WITH(nn::layer_norm(x, {4}, {tape.constant(zeros({3}))}),
                    "normalisation: weight or bias of shape (3) for an input of shape (2, 4)");
  CHECK_THROWS_WITH(nn::layer_norm(x, {4}, {{}, tape.constant(zeros({4}, Dtype::f64))}),
                    "normalize: dtypes differ: f32 x f64");
}
