// Mixed precision on the tape: the types of operations and gradients, and the independence of a
// sample's bits from its batch.
// File tags: [alone]
#include "autograd/precision.h"

#include <algorithm>
#include <cmath>

#include "autograd/check/op_run.h"
#include "autograd/op.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/segment.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "kernels/host_device/geometry.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

constexpr Dtype narrow_types[] = {Dtype::bf16, Dtype::f16};

// Half the distance between neighbouring numbers near 1.
double rounding(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

std::vector<double> doubles(const Tensor& x) {
  return to_dtype(contiguous(x), Dtype::f64).to_vector<double>();
}

// The largest difference, relative to the largest expected value, which counts as at least 1.
double error(const Tensor& y, const Tensor& expected) {
  const std::vector<double> got = doubles(y), wanted = doubles(expected);
  REQUIRE(got.size() == wanted.size());
  double largest = 1, difference = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    largest = std::max(largest, std::abs(wanted[k]));
    if (!(std::abs(got[k] - wanted[k]) <= difference)) difference = std::abs(got[k] - wanted[k]);
  }
  return difference / largest;
}

Tensor random_tensor(PublicRandom& random, const Shape& shape) {
  return to_dtype(uniform_values(random, shape, -1, 1), Dtype::f32);
}

Instance on_device(Instance instance, Device device) {
  for (OpInput& input : instance.inputs) input.value = input.value.to(device);
  return instance;
}

// Two layers with the norm between them, on [n, 6].
nn::Sequential perceptron() {
  return nn::Sequential{nn::Linear(6, 8), nn::LayerNorm(Shape{8}), nn::Tanh(), nn::Linear(8, 3)};
}

// Attention and a recurrent layer, on [n, 5, 8].
nn::Sequential sequences() {
  return nn::Sequential{
      nn::TransformerEncoderLayer(8, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true}),
      nn::LSTM(8, 6, {.batch_first = true}), nn::Flatten(), nn::Linear(30, 3)};
}

}  // namespace

TEST_CASE("every operation in 16 bits agrees with double to rounding, and its gradients too",
          "[gpu]") {
  // An op may consist of several kernels, each of which rounds its result.
  constexpr double factor = 8;
  for (const OpCase& one : op_cases()) {
    PublicRandom random(78);
    for (int i = 0; i < 3; ++i) {
      Instance instance = with_loss(one.make(random), random);
      for (const Dtype precision : narrow_types) {
        INFO(one.op << ", " << one.what << " in " << name(precision));
        for (OpInput& x : instance.inputs) {
          if (is_float(x.value.dtype()))
            x.value = to_dtype(to_dtype(x.value, precision), Dtype::f64);
        }
        const OpRun wide = run_case(instance, Dtype::f64);
        for (const DeviceInfo& info : devices()) {
          if (info.device != cpu && cpu_alone(one)) continue;
          INFO(info.name);
          const OpRun run = run_case(on_device(instance, info.device), Dtype::f32, 0, precision);
          CHECK(run.losses.dtype() == Dtype::f32);
          CHECK(error(run.output, wide.output) <= factor * rounding(precision));
          for (std::size_t k = 0; k < run.uses.size(); ++k) {
            if (run.uses[k].empty()) continue;
            const Tensor rows = rows_of_uses(run.uses[k]);
            CHECK(rows.dtype() == Dtype::f32);
            CHECK(error(rows, rows_of_uses(wide.uses[k])) <= factor * rounding(precision));
          }
        }
      }
    }
  }
}

TEST_CASE("on a tape in f64 every operation has the bits of inputs in f64, whatever their type") {
  for (const OpCase& one : op_cases()) {
    PublicRandom random(79);
    Instance instance = with_loss(one.make(random), random);
    INFO(one.op << ", " << one.what);
    for (OpInput& x : instance.inputs) {
      if (is_float(x.value.dtype())) x.value = to_dtype(to_dtype(x.value, Dtype::f32), Dtype::f64);
    }
    for (Parameter* p : instance.parameters)
      p->value = to_dtype(to_dtype(p->value, Dtype::f32), Dtype::f64);
    const OpRun wide = run_case(instance, Dtype::f64),
                run = run_case(instance, Dtype::f32, 0, Dtype::f64);
    CHECK(doubles(run.output) == doubles(wide.output));
    CHECK(run.losses.dtype() == Dtype::f64);
    for (std::size_t k = 0; k < run.grads.size(); ++k) {
      if (run.grads[k].defined()) CHECK(doubles(run.grads[k]) == doubles(wide.grads[k]));
    }
    for (std::size_t k = 0; k < run.uses.size(); ++k) {
      if (run.uses[k].empty()) continue;
      const Tensor rows = rows_of_uses(run.uses[k]);
      CHECK(rows.dtype() == Dtype::f32);
      CHECK(error(rows, rows_of_uses(wide.uses[k])) < 1e-6);
    }
  }
}

TEST_CASE("a tape in f64 stays so in regions and segments, and takes no private data") {
  PublicRandom random(3);
  Parameter w(random_tensor(random, {4, 5}));
  Tape tape({.precision = Dtype::f64});
  const Var x = tape.input(random_tensor(random, {3, 5}));
  const PrecisionRegion region(tape, Dtype::bf16);
  const Var y = linear(x, tape.use(w)) + tape.constant(random_tensor(random, {4}));
  CHECK(y.dtype() == Dtype::f64);
  CHECK(cast(y, Dtype::f32).is(y));
  CHECK(linear(x, tape.use(w), tape.constant(random_tensor(random, {4}))).dtype() == Dtype::f64);
  SumSink sink;
  tape.backward(sum_per_sample(y), sink);
  CHECK(sink.gradients()[0].second.dtype() == Dtype::f32);
  CHECK(throws([] { Tape({.private_data = true, .precision = Dtype::f64}); },
               "tape: the precision f64 is not for private data"));
}

TEST_CASE("products are 16-bit, sums are f32, and other operations follow their batched inputs") {
  for (const Dtype narrow : narrow_types) {
    PublicRandom random(1);
    Parameter w(random_tensor(random, {4, 5})), gain(random_tensor(random, {4}));
    Tape tape({.precision = narrow});
    const Var x = tape.input(random_tensor(random, {3, 5}));
    CHECK(relu(x).dtype() == Dtype::f32);
    const Var y = linear(x, tape.use(w));
    CHECK(y.dtype() == narrow);
    CHECK(mul(relu(y), tape.use(gain)).dtype() == narrow);
    CHECK(add(y, tape.input(random_tensor(random, {3, 4}))).dtype() == Dtype::f32);
    CHECK(softmax(y, 1).dtype() == Dtype::f32);
    CHECK(sum(y, {1}).dtype() == Dtype::f32);
    CHECK(exp(y).dtype() == Dtype::f32);
    CHECK(normalize(y, 1, 1e-5).dtype() == narrow);
    CHECK(matmul(tape.use(w), tape.constant(random_tensor(random, {5, 2}))).dtype() == Dtype::f32);
    Parameter exact(to_dtype(w.value, Dtype::f64));
    CHECK(linear(cast(x, Dtype::f64), tape.use(exact)).dtype() == Dtype::f64);
  }
}

TEST_CASE("an operation of a user's computes in the type that it names, and promotes by default") {
  using enum Op::Precision;
  static const Op lower_op("lower", {.precision = lower}), f32_op("f32", {.precision = f32}),
      promote_op("promote", {.precision = promote}), silent_op("unnamed");
  PublicRandom random(2);
  const Tensor value = random_tensor(random, {3, 4});
  const auto type_of = [](const Op& op, Var x) {
    cast_inputs(op, {&x});
    return x.dtype();
  };
  for (const Dtype precision : narrow_types) {
    Tape tape({.precision = precision});
    const Var full = tape.input(value), half = cast(full, precision);
    for (const Var& x : {full, half}) {
      CHECK(type_of(lower_op, x) == precision);
      CHECK(type_of(f32_op, x) == Dtype::f32);
      CHECK(type_of(promote_op, x) == x.dtype());
      CHECK(type_of(silent_op, x) == x.dtype());
    }
  }
}

TEST_CASE("regions nest, and a module's precision holds for its calls and children") {
  PublicRandom random(2);
  Parameter w(random_tensor(random, {5, 5}));
  Tape tape;
  const Var x = tape.input(random_tensor(random, {3, 5}));
  const auto type = [&](const Var& value) { return linear(value, tape.use(w)).dtype(); };
  CHECK(type(x) == Dtype::f32);
  {
    const PrecisionRegion outer(tape, Dtype::bf16);
    const Var y = linear(x, tape.use(w));
    CHECK(y.dtype() == Dtype::bf16);
    {
      const PrecisionRegion inner(tape, Dtype::f32);
      CHECK(type(y) == Dtype::f32);
      CHECK(relu(y).dtype() == Dtype::f32);
      const PrecisionRegion innermost(tape, Dtype::f16);
      CHECK(type(y) == Dtype::f16);
    }
    CHECK(type(x) == Dtype::bf16);
  }
  CHECK(type(x) == Dtype::f32);
  CHECK_FALSE(tape.precision());

  nn::Sequential model{nn::Linear(5, 5), nn::Sequential{nn::Linear(5, 4)}};
  model.set_precision(Dtype::bf16);
  CHECK(model(x).dtype() == Dtype::bf16);
  model[1].set_precision(Dtype::f32);
  CHECK(model(x).dtype() == Dtype::f32);
  CHECK(model[0](x).dtype() == Dtype::f32);
  CHECK_THROWS_AS(model.set_precision(Dtype::f64), std::invalid_argument);
  CHECK_THROWS_AS(Tape({.precision = Dtype::i64}), std::invalid_argument);
}

TEST_CASE("a parameter is converted once, and its gradient keeps its form and is f32") {
  PublicRandom random(3);
  Parameter w(random_tensor(random, {4, 4}));
  Tape tape({.private_data = true, .precision = Dtype::bf16});
  const Var x = tape.input(random_tensor(random, {3, 4}));
  const Var once = cast(tape.use(w), Dtype::bf16);
  CHECK(cast(tape.use(w), Dtype::bf16).is(once));
  const Var operand = cast(x, Dtype::bf16);
  CHECK(cast(x, Dtype::bf16).is(operand));
  const Var y = linear(linear(x, tape.use(w)), tape.use(w));
  CollectSink sink;
  tape.backward(sum_per_sample(y), sink);
  const std::vector<PerSampleGrad> uses = sink.uses(w);
  REQUIRE(uses.size() == 2);
  for (const PerSampleGrad& use : uses) {
    CHECK(std::string_view(use.form()) == "outer");
    CHECK(use.dtype() == Dtype::f32);
    CHECK(use.sum().dtype() == Dtype::f32);
    CHECK(use.materialize().dtype() == Dtype::f32);
  }
  CHECK(w.value.dtype() == Dtype::f32);
}

TEST_CASE("views of one tensor that look alike are converted each for itself") {
  PublicRandom random(4);
  Tape tape({.private_data = true, .precision = Dtype::bf16});
  const Var x = tape.input(random_tensor(random, {3, 3, 3}), 1);
  const auto check_cast = [&](const Var& v) {
    const Var y = cast(v, Dtype::bf16);
    CHECK(y.samples() == v.samples());
    CHECK(doubles(y.value()) == doubles(to_dtype(v.value(), Dtype::bf16)));
  };
  check_cast(x);
  check_cast(transpose(x, 0, 1));
  check_cast(transpose(x, 0, 2));
  const Tensor table = random_tensor(random, {3, 3});
  CHECK_FALSE(tape.constant(table).is(tape.input(table)));
  check_cast(tape.constant(table));
  check_cast(tape.input(table));
}

TEST_CASE("a loss in 16 bits is refused") {
  PublicRandom random(4);
  Parameter w(random_tensor(random, {1, 4}));
  Tape tape({.precision = Dtype::bf16});
  const Var loss = squeeze(linear(tape.input(random_tensor(random, {3, 4})), tape.use(w)), 1);
  SumSink sink;
  CHECK_THROWS_AS(tape.backward(loss, sink), std::invalid_argument);
  CHECK_NOTHROW(tape.backward(to_f32(loss), sink));
}

TEST_CASE("activations take half the bytes in 16 bits") {
  nn::manual_seed(5);
  nn::Sequential model{nn::Conv2d(8, 16, 3, {.padding = {1}}),
                       nn::GroupNorm(4, 16),
                       nn::Relu(),
                       nn::Conv2d(16, 16, 3, {.padding = {1}}),
                       nn::Relu(),
                       nn::Flatten(),
                       nn::Linear(16 * 12 * 12, 10)};
  PublicRandom random(6);
  const Tensor images = random_tensor(random, {64, 8, 12, 12});
  const auto held = [&](Dtype precision) {
    const std::size_t before = allocator(cpu).statistics().current;
    Tape tape({.precision = precision});
    const Tensor given = clone(to_dtype(images, precision));
    const Var y = model(tape.input(given));
    return static_cast<double>(allocator(cpu).statistics().current - before);
  };
  const double parameters = 4 * static_cast<double>(model.parameter_count());
  const double wide = held(Dtype::f32);
  for (const Dtype narrow : narrow_types) {
    // Half of each activation, and a 16-bit copy of the parameters (docs/appendix/memory-notes.md,
    // "Mixed precision").
    CHECK(held(narrow) == Approx(wide / 2 + parameters / 2).epsilon(0.03));
  }
}

TEST_CASE("a sample's gradient has the same bits in any batch, in every precision") {
  nn::manual_seed(7);
  nn::Sequential images = small_network(), rows = perceptron(), steps = sequences();
  PublicRandom random(8);
  const Batch batch = random_batch(70, random);
  const Tensor features = random_tensor(random, {70, 6}),
               series = random_tensor(random, {70, 5, 8});
  const auto bits = [&](nn::Sequential& model, const Tensor& x, std::int64_t begin,
                        std::int64_t end, Dtype precision) {
    Tape tape({.private_data = true, .precision = precision});
    const Var y = model(tape.input(x.slice(0, begin, end)));
    CollectSink sink;
    tape.backward(cross_entropy(y, batch.targets.slice(0, begin, end)), sink);
    std::vector<double> values;
    for (Parameter* p : model.parameters()) {
      for (const double v : doubles(rows_of_uses(sink.uses(*p)).slice(0, 40 - begin, 41 - begin)))
        values.push_back(v);
    }
    return values;
  };
  for (const Dtype precision : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const auto& [model, x] :
         {std::pair(&images, batch.images), {&rows, features}, {&steps, series}}) {
      const std::vector<double> whole = bits(*model, x, 0, 70, precision);
      for (const auto& [begin, end] :
           {std::pair(40, 42), {38, 41}, {40, 41}, {7, 70}, {0, 41}, {33, 49}})
        CHECK(bits(*model, x, begin, end, precision) == whole);
    }
  }
}

TEST_CASE("a recomputed segment in 16 bits has equal bits") {
  nn::manual_seed(9);
  nn::Sequential model = small_network();
  PublicRandom random(10);
  const Batch batch = random_batch(6, random);
  const auto gradients = [&](Dtype precision, bool again) {
    Tape tape({.private_data = true, .precision = precision});
    const auto run = [&](const Var& x) { return model(x); };
    const Var x = tape.input(batch.images);
    const Var y = again ? segment(run, x) : run(x);
    CHECK(y.dtype() == precision);
    CollectSink sink;
    tape.backward(cross_entropy(y, batch.targets), sink);
    std::vector<double> values;
    for (Parameter* p : model.parameters()) {
      for (const double v : doubles(rows_of_uses(sink.uses(*p)))) values.push_back(v);
    }
    return values;
  };
  for (const Dtype precision : narrow_types)
    CHECK(gradients(precision, true) == gradients(precision, false));
}

TEST_CASE("norms include the subnormal factors that sums include, by every method") {
  for (const auto& [small, large] : {std::pair(1e-39, 1e38), {1e38, 1e-39}}) {
    const auto like = [](const Tensor& x) { return to_dtype(x, Dtype::f64); };
    const Tensor b = full({2, 3, 4}, small, Dtype::bf16), a = full({2, 3, 5}, large, Dtype::bf16);
    const Tensor dy = full({2, 4, 1, 2, 2}, small, Dtype::bf16),
                 x = full({2, 3, 1, 3, 3}, large, Dtype::bf16);
    const Window window{.kernel = {1, 2, 2}};
    const std::pair<PerSampleGrad, PerSampleGrad> forms[] = {
        {PerSampleGrad::outer(b, a, {4, 5}), PerSampleGrad::outer(like(b), like(a), {4, 5})},
        {PerSampleGrad::patches(dy, x, window, {4, 3, 2, 2}),
         PerSampleGrad::patches(like(dy), like(x), window, {4, 3, 2, 2})}};
    for (const auto& [narrow, wide] : forms) {
      const double exact = doubles(dot(wide, wide))[0];
      REQUIRE(exact > 1e-3);
      for (const NormMethod norm_method :
           {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize})
        CHECK(doubles(squared_norm({narrow}, norm_method))[1] == Approx(exact).epsilon(1e-6));
      // Processors may take subnormal factors for zeros in sums: bounds hold what is lost.
      NormErrorBounds bounds;
      squared_norm({narrow}, NormMethod::automatic, &bounds);
      const std::vector<double> sum = doubles(narrow.sum()), whole = doubles(wide.sum());
      double off = 0;
      for (std::size_t k = 0; k < sum.size(); ++k) off += std::pow(sum[k] - whole[k], 2);
      CHECK(std::sqrt(off) <= bounds.error_bounds[0] + bounds.error_bounds[1]);
    }
  }
}
