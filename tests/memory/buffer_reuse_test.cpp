// The bytes held during a step and how long: values, gradients, and optimizer states.
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/stochastic_rounding.h"
#include "nn/optim/update_sink.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/throws.h"
#include "tests/support/toy_parameter.h"

using namespace sotto;

namespace {

std::size_t in_use() { return allocator(cpu).statistics().current; }

Tensor random_values(std::uint64_t seed, const Shape& shape, Dtype dtype = Dtype::f32) {
  PublicRandom random(seed);
  return to_dtype(nn::random_normal(shape, 0, 1, random), dtype);
}

bool same(const Tensor& a, const Tensor& b) {
  return to_dtype(a, Dtype::f64).to_vector<double>() == to_dtype(b, Dtype::f64).to_vector<double>();
}

constexpr std::size_t slot = 64 * 64 * sizeof(float);  // a size class of its own

}  // namespace

TEST_CASE("a derivative depends on what its functor says it reads and on nothing else") {
  const Tensor nothing = full({5}, std::numeric_limits<double>::quiet_NaN(), Dtype::f64);
  const Tensor dy = Tensor::from({1.0, -2.0, 0.5, 3.0, 1.0}, {5}, Dtype::f64);
  const Tensor a = Tensor::from({0.4, 0.7, 1.2, 0.9, 2.0}, {5}, Dtype::f64);
  const Tensor b = Tensor::from({0.5, 0.6, 1.1, 2.0, 2.0}, {5}, Dtype::f64);
  for (int op = 0; op < UnaryFunctors::size; ++op) {
    const Constants constants{0.6, 1.5};
    const Reads reads = unary_reads(op);
    bool defined = false;
    INFO(op);
    for (const double shift : {0.0, 1.0}) {  // some are defined below 1 only, or above
      const Tensor x = add(scale(a, 0.4), full({}, shift, a.dtype())), y = unary(op, x, constants);
      const Tensor slope = unary_grad(op, x, y, dy, constants);
      if (!std::isfinite(sum(slope).item())) continue;
      defined = true;
      CHECK(same(unary_grad(op, reads_first(reads) ? x : nothing, reads_second(reads) ? y : nothing,
                            dy, constants),
                 slope));
    }
    CHECK(defined);
  }
  for (int op = 0; op < BinaryFunctors::size; ++op) {
    for (const int which : {0, 1}) {
      const Reads reads = binary_reads(op, which);
      INFO(op << " by operand " << which);
      CHECK(same(binary_grad(op, which, reads_first(reads) ? a : nothing,
                             reads_second(reads) ? b : nothing, dy),
                 binary_grad(op, which, a, b, dy)));
    }
  }
}

TEST_CASE("a result takes the memory of a temporary, and leaves that of a named value alone") {
  Tape tape;
  const Tensor x = random_values(1, {64, 64});
  const Var a = tape.input(x, 0, true);
  const std::size_t start = in_use();
  Var sum = a + a;
  const void* memory = sum.value().view().data;
  const Tensor expected = add(x, x);
  SECTION("a named operand keeps its value") {
    const Var y = relu(sum);
    CHECK(y.value().view().data != memory);
    CHECK(same(sum.value(), expected));
  }
  SECTION("a moved one does not") {
    const Var y = relu(std::move(sum));
    CHECK(y.value().view().data == memory);
    CHECK(same(y.value(), unary(unary_index<functors::Relu>, expected)));
    CHECK(in_use() - start == 2 * slot);  // y and `expected`
  }
  SECTION("nor one whose value a backward reads") {
    const Var product = a * sum;
    const Var y = relu(std::move(sum));
    CHECK(y.value().view().data != memory);
    CHECK(same(product.value(), mul(x, expected)));
  }
  SECTION("nor does a smaller one") {
    Var column = tape.input(full({64, 1}, 1));
    const void* small = column.value().view().data;
    const Var y = std::move(column) + std::move(sum);
    CHECK(y.value().view().data != small);
    CHECK(y.value().view().data == memory);
    CHECK(same(y.value(), add(expected, full({64, 64}, 1))));
  }
}

TEST_CASE("activations are kept once, by what reads them") {
  Parameter w(random_values(2, {64, 64})), scale(full({64}, 1)), shift(full({64}, 0));
  Tape tape;
  const Var x = tape.input(random_values(3, {64, 64}));
  const std::size_t start = in_use();
  const auto grown = [&] { return (in_use() - start) / slot; };
  Var y = linear(x, tape.use(w));
  CHECK(grown() == 1);
  // The normalised values are kept, and the next op's result, which relu's gradient reads, too.
  y = relu(nn::layer_norm(y, {64}, {tape.use(scale), tape.use(shift)}));
  CHECK(grown() == 2);
  y = tape.input(x.value()) - y;
  CHECK(grown() == 3);
  y = tanh(std::move(y));
  CHECK(grown() == 3);
  // Dropout keeps its mask, a byte for each element.
  const std::size_t before = in_use();
  y = dropout(std::move(y), 0.5);
  CHECK(in_use() - before == slot + slot / sizeof(float));
}

TEST_CASE("frozen parameters get no gradient, and what only they would read is not kept") {
  const nn::Linear frozen(64, 64, {.bias = false});
  nn::Conv2d image(4, 4, Shape{1}, {}, false);
  frozen.weight->trainable = false;
  image.freeze();
  Parameter w(random_values(4, {64, 64}));
  Tape tape;
  const std::size_t start = in_use();
  Var y = linear(tape.input(random_values(5, {64, 64})), tape.use(w));  // keeps its input
  y = linear(y, tape.use(*frozen.weight));
  CHECK((in_use() - start) / slot == 2);
  y = image(reshape(y, {64, 4, 4, 4}));
  y = sum_per_sample(y);
  CHECK((in_use() - start) / slot == 1);
  SumSink sink;
  tape.backward(y, sink);
  REQUIRE(sink.gradients().size() == 1);
  CHECK(sink.gradients()[0].first == &w);
}

TEST_CASE("an elementwise gradient is written over the one it is made of") {
  Parameter w(random_values(6, {64, 64}));
  Tape tape;
  Var y = linear(tape.input(random_values(7, {64, 64})), tape.use(w));
  for (int i = 0; i < 6; ++i) y = affine(tanh(std::move(y)), 0.5, 0.1);
  // The values kept are the input, tanh's results and the last affine's result.
  const Var loss = sum_per_sample(square(std::move(y)));
  SumSink sink;
  const std::size_t before = in_use();
  allocator(cpu).reset_peak();
  tape.backward(loss, sink);
  // One gradient at a time, whatever the depth, and one expanded copy of the loss's gradient.
  CHECK(allocator(cpu).statistics().peak - before <= 2 * slot);
}

TEST_CASE("a gradient that is handed to two values is not written over") {
  // y = (a + b) hands one tensor to a and b; each goes through an op that writes in place.
  for (const bool twice : {false, true}) {
    Tape tape;
    const Tensor x = random_values(8, {8, 3}, Dtype::f64);
    const Var leaf = tape.input(x, 0, true);
    const Var a = tanh(leaf), b = twice ? a : affine(leaf, 3, 0);
    SumSink sink;
    tape.backward(sum_per_sample(square(a + b)), sink);
    const std::vector<double> grad = tape.grad(leaf).to_vector<double>();
    const std::vector<double> values = x.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double t = std::tanh(values[i]), other = twice ? t : 3 * values[i];
      const double slope = 1 - t * t, other_slope = twice ? slope : 3;
      CHECK(grad[i] == Approx(2 * (t + other) * (slope + other_slope)));
    }
  }
}

TEST_CASE(
    "channels-last images stay so through normalisation, with the values of the other order") {
  const Tensor x = random_values(9, {5, 8, 6, 6}, Dtype::f64);
  const Tensor last = Tensor::empty_ordered(x.shape(), {0, 2, 3, 1}, Dtype::f64, cpu);
  copy_into(x, last);
  const Tensor w = random_values(10, x.shape(), Dtype::f64);
  std::vector<Tensor> values, grads;
  for (const Tensor& input : {x, last}) {
    Tape tape;
    const Var leaf = tape.input(input, 0, true);
    const Var y = normalize_groups(leaf, 4, 1e-3);
    CHECK(y.value().memory_order() == input.memory_order());
    SumSink sink;
    tape.backward(sum_per_sample(y * tape.input(w)), sink);
    values.push_back(y.value());
    grads.push_back(tape.grad(leaf));
  }
  CHECK(same_bits(values[1], values[0]));
  CHECK(same_bits(grads[1], grads[0]));
  // A single sample with a group for each channel is a view of rows that are not row-major.
  Tape one;
  const auto alone = [&](const Tensor& input) {
    return normalize_groups(one.input(input.slice(0, 0, 1)), 8, 1e-3).value();
  };
  check_close(alone(x), sotto::values(alone(last)));
  Tape tape;
  const Var y = normalize(reshape(tape.input(x), {5, 4, 72}), 1, 1e-3);
  check_close(reshape(y.value(), x.shape()), sotto::values(values[0]));
}

namespace {

nn::Sequential small_network() {
  nn::manual_seed(5);
  nn::Sequential network;
  for (int layer = 0; layer < 12; ++layer) {
    network.add(nn::Linear(64, 64));
    network.add(nn::Tanh());
  }
  return network;
}

Var loss_of(nn::Module& network, Tape& tape, std::uint64_t seed) {
  return sum_per_sample(square(network(tape.input(random_values(seed, {16, 64})))));
}

}  // namespace

TEST_CASE("an update sink updates to the bits of a later step, one gradient at a time") {
  nn::Sequential apart = small_network(), fused = small_network();
  nn::Adam one(apart), other(fused);
  std::size_t held[2] = {};
  for (std::uint64_t step = 0; step < 3; ++step) {
    Tape first, second;
    SumSink sums;
    const Var a = loss_of(apart, first, step), b = loss_of(fused, second, step);
    std::size_t before = in_use();
    allocator(cpu).reset_peak();
    first.backward(a, sums);
    held[0] = allocator(cpu).statistics().peak - before;
    one.step(sums.gradients());
    nn::UpdateSink sink(other);
    before = in_use();
    allocator(cpu).reset_peak();
    second.backward(b, sink);
    held[1] = allocator(cpu).statistics().peak - before;
  }
  const auto expected = apart.parameters(), found = fused.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(same(expected[i]->value, found[i]->value));
  // Twelve matrices of gradients against one, and the update's workspace.
  CHECK(held[0] > 8 * slot);
  CHECK(held[1] < 5 * slot);
}

TEST_CASE("an update sink takes one backward of an ordinary tape") {
  nn::Sequential network = small_network();
  nn::Sgd optimizer(network);
  nn::UpdateSink sink(optimizer);
  Tape first, second, secret({.private_data = true});
  first.backward(loss_of(network, first, 1), sink);
  const Var again = loss_of(network, second, 2);
  CHECK(throws([&] { second.backward(again, sink); }, "UpdateSink: a second gradient"));
  const Var loss = loss_of(network, secret, 1);
  CHECK(throws([&] { secret.backward(loss, sink); }, "sinks that bound each sample's influence"));
}

TEST_CASE("stochastic rounding gives the two adjacent values, in expectation the number itself") {
  constexpr std::int64_t draws = 40000;
  constexpr double step = 0x1p-7;  // between bf16 numbers from 1 to 2
  for (const double part : {0.0, 0.1, 0.5, 0.8}) {
    for (const double sign : {1.0, -1.0}) {
      const Tensor x = full({draws}, sign * (1 + part * step));
      const Tensor y = Tensor::empty({draws}, Dtype::bf16);
      nn::round_at_random({.seed = 1}, 0, x, y);
      std::int64_t up = 0;
      for (const double v : to_dtype(y, Dtype::f64).to_vector<double>()) {
        REQUIRE((v == sign || v == sign * (1 + step)));
        up += v != sign;
      }
      // Five standard deviations of a binomial count.
      const double n = static_cast<double>(draws);
      const double deviation = std::sqrt(n * part * (1 - part));
      CHECK(std::abs(static_cast<double>(up) - n * part) <= 5 * deviation);
    }
  }
}

TEST_CASE(
    "stochastic rounding is a function of key and index, and keeps values without a neighbour") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x = random_values(11, {1000});
  const auto rounded = [](const Tensor& from, std::uint64_t seed, std::uint64_t first) {
    const Tensor y = Tensor::empty(from.shape(), Dtype::bf16);
    nn::round_at_random({.seed = seed}, first, from, y);
    return y;
  };
  CHECK(same(rounded(x, 1, 40).slice(0, 13, 99), rounded(x.slice(0, 13, 99), 1, 53)));
  CHECK_FALSE(same(rounded(x, 1, 0), rounded(x, 2, 0)));
  CHECK_FALSE(same(rounded(x, 1, 0), rounded(x, 1, 1000)));
  CHECK(same(rounded(to_dtype(x, Dtype::f64), 1, 0), rounded(x, 1, 0)));
  const float max = std::numeric_limits<float>::max();
  const Tensor special = Tensor::from(std::vector<float>{infinity, -infinity, 0, max, -max}, {5});
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto y = to_dtype(rounded(special, seed, 0), Dtype::f32).to_vector<float>();
    CHECK(y[0] == infinity);
    CHECK(y[1] == -infinity);
    CHECK(y[2] == 0);
    CHECK(std::isfinite(y[3]));
    CHECK(y[4] == -y[3]);
  }
  const Tensor nan = full({3}, std::numeric_limits<double>::quiet_NaN());
  CHECK(std::isnan(to_dtype(rounded(nan, 1, 0), Dtype::f32).to_vector<float>()[0]));
}

namespace {

// |p - 1|^2 / 2 decreases from p = 0; parameters larger than a block are updated in blocks.
template <class Optimizer, class Rule>
std::pair<std::vector<double>, std::size_t> descended(const Rule& rule, bool narrow,
                                                      std::int64_t elements, Dtype dtype) {
  Parameter p(zeros({elements}, dtype));
  const std::size_t before = in_use();
  Optimizer optimizer(std::vector<typename Optimizer::Group>{{{&p}, rule, narrow}});
  for (int step = 0; step < 60; ++step)
    optimizer.step({{&p, sub(p.value, full({elements}, 1, dtype))}});
  const std::size_t bytes = in_use() - before;
  return {to_dtype(p.value, Dtype::f64).to_vector<double>(), bytes};
}

template <class Optimizer, class Rule>
void check_narrow_state(const Rule& rule, std::size_t buffers) {
  for (const std::int64_t elements : {100, 40000}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const auto [wide, wide_bytes] = descended<Optimizer>(rule, false, elements, dtype);
      const auto [narrow, narrow_bytes] = descended<Optimizer>(rule, true, elements, dtype);
      const auto count = static_cast<std::size_t>(elements);
      CHECK(wide_bytes == buffers * Allocator::size_class(count * size_of(dtype)));
      CHECK(narrow_bytes == buffers * Allocator::size_class(count * size_of(Dtype::bf16)));
      double mean = 0;
      for (std::size_t i = 0; i < count; ++i) {
        mean += (narrow[i] - wide[i]) / static_cast<double>(count);
        REQUIRE(narrow[i] == Approx(wide[i]).margin(0.05));
      }
      // The elements' rounding errors are not correlated.
      CHECK(std::abs(mean) < 0.01);
      CHECK(narrow != wide);
    }
  }
}

}  // namespace

TEST_CASE("a state in bf16 takes half the bytes and trains as in f32 on average") {
  check_narrow_state<nn::Sgd>(nn::SgdRule{.learning_rate = 0.05, .momentum = 0.9}, 1);
  check_narrow_state<nn::Adam>(nn::AdamRule<false>{.learning_rate = 0.02}, 2);
  check_narrow_state<nn::Lamb>(nn::LambRule{.learning_rate = 0.02}, 2);  // whole parameters
}

TEST_CASE("small changes to a state are not lost in bf16") {
  // v grows by 2^-10 v at each step at first: rounding to nearest would never change it.
  Parameter p(zeros({20000}));
  nn::Adagrad optimizer(std::vector<nn::Adagrad::Group>{{{&p}, {.initial = 1}, true}});
  const Tensor grad = full({20000}, 0x1p-5);
  for (int step = 0; step < 100; ++step) optimizer.step({{&p, grad}});
  struct One : nn::Module {
    explicit One(Parameter& p) : owned(&p) {}
    ~One() override { (void)owned.release(); }
    Var forward(const Var& x) override { return x; }
    void visit(const nn::Visitor& visitor) override { visitor("p", owned); }
    std::unique_ptr<Parameter> owned;
  } names(p);
  for (const auto& [name, state] : optimizer.state(names.named_parameters())) {
    if (state.dtype() != Dtype::bf16) continue;
    const double mean = sum(to_dtype(state, Dtype::f64)).item() / 20000;
    CHECK(mean == Approx(1 + 100 * 0x1p-10).epsilon(0.002));
  }
}

TEST_CASE("a state in bf16 is saved and resumed bit by bit, and another type is refused") {
  nn::Sequential whole = small_network(), parts = small_network(), wide = small_network();
  const auto groups = [](nn::Module& network, bool narrow) {
    return std::vector<nn::Adam::Group>{{network.parameters(), {}, narrow}};
  };
  nn::Adam straight(groups(whole, true)), before(groups(parts, true)), f32(groups(wide, false));
  const auto step = [](nn::Module& network, nn::Optimizer& optimizer, std::uint64_t seed) {
    Tape tape;
    SumSink sink;
    tape.backward(loss_of(network, tape, seed), sink);
    optimizer.step(sink.gradients());
  };
  for (std::uint64_t k = 0; k < 6; ++k) step(whole, straight, k);
  for (std::uint64_t k = 0; k < 3; ++k) step(parts, before, k);
  const auto state = before.state(parts.named_parameters());
  nn::Adam after(groups(parts, true));
  after.load_state(state, parts.named_parameters());
  for (std::uint64_t k = 3; k < 6; ++k) step(parts, after, k);
  const auto expected = whole.parameters(), found = parts.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(same(expected[i]->value, found[i]->value));
  CHECK(throws([&] { f32.load_state(state, wide.named_parameters()); }, "where f32"));
}
