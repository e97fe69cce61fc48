// Independence of samples: every way of mixing them is refused on a private tape when it is
// recorded, and has a correct gradient on an ordinary one.
#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

struct Mixing {
  const char* op;     // as the error names it
  const char* shape;  // in the error
  std::function<Var(const Var&)> run;
};

Tensor matrix(std::int64_t rows, std::int64_t columns) {
  PublicRandom random(9);
  return uniform_values(random, {rows, columns});
}

Var batch_norm(const Var& x) {
  const Var centered = sub(x, mean(x, {0}, true));
  return mul(centered, rsqrt(affine(mean(square(centered), {0}, true), 1, 1e-5)));
}

// Ways to mix the samples of a [4, 4] value along axis 0 (square, so that confused axes show).
std::vector<Mixing> mixings() {
  return {
      {"sum", "(4, 4)", [](const Var& x) { return sum(x, {0}); }},
      {"sum", "(4, 4)", [](const Var& x) { return sum(x); }},
      {"mean", "(4, 4)", [](const Var& x) { return mean(x, {0}, true); }},
      {"variance", "(4, 4)", [](const Var& x) { return variance(x, {0}); }},
      {"logsumexp", "(4, 4)",
       [](const Var& x) {
         return logsumexp(x, {0, 1});
       }},
      {"max", "(4, 4)", [](const Var& x) { return max(x, 0); }},
      {"min", "(4, 4)", [](const Var& x) { return min(x, 0); }},
      {"prod", "(4, 4)", [](const Var& x) { return prod(x, 0); }},
      {"sort", "(4, 4)", [](const Var& x) { return sort(x, 0).values; }},
      {"topk", "(4, 4)", [](const Var& x) { return topk(x, 2, 0).values; }},
      {"cumulative_sum", "(4, 4)", [](const Var& x) { return cumulative_sum(x, 0); }},
      {"tril", "(4, 4)", [](const Var& x) { return tril(x); }},
      {"triu", "(4, 4)", [](const Var& x) { return triu(x); }},
      {"split", "(4, 4)",
       [](const Var& x) {
         return split(x, 0, {2, 2})[1];
       }},
      {"norm", "(4, 4)", [](const Var& x) { return norm(x); }},
      {"softmax", "(4, 4)", [](const Var& x) { return softmax(x, 0); }},
      {"log_softmax", "(4, 4)", [](const Var& x) { return log_softmax(x, -2); }},
      {"normalize", "(4, 4)", [](const Var& x) { return normalize(x, 2, 1e-2); }},
      {"map_axis", "(4, 4)", [](const Var& x) { return map_axis(x, 0, matrix(3, 4)); }},
      {"concat", "(4, 4)",
       [](const Var& x) {
         return concat({x, x}, 0);
       }},
      {"concat", "(4, 4)",
       [](const Var& x) {
         return concat({x, transpose(x, 0, 1)}, 1);
       }},
      {"slice", "(4, 4)", [](const Var& x) { return slice(x, 0, 1, 3); }},
      {"slice", "(4, 4)", [](const Var& x) { return select(x, 0, 2); }},
      {"take", "(4, 4)",
       [](const Var& x) {
         return take(x, 0, {1, 0, 3, 2});
       }},
      {"flip", "(4, 4)", [](const Var& x) { return flip(x, {0}); }},
      {"roll", "(4, 4)", [](const Var& x) { return roll(x, 0, 1); }},
      {"pad", "(4, 4)", [](const Var& x) { return pad(x, 0, 1, 1); }},
      {"reshape", "(4, 4)",
       [](const Var& x) {
         return reshape(x, {2, 8});
       }},
      {"reshape", "(4, 4)", [](const Var& x) { return reshape(x, {16}); }},
      {"reshape", "(4, 4)", [](const Var& x) { return flatten(x, 0, 1); }},
      {"add", "(4, 4)", [](const Var& x) { return add(x, transpose(x, 0, 1)); }},
      {"mul", "(4, 1)", [](const Var& x) { return mul(x, x.tape().constant(matrix(4, 1))); }},
      {"where", "(4, 4)",
       [](const Var& x) { return where(x.tape().constant(matrix(4, 4)), x, x); }},
      {"matmul", "(4, 4)", [](const Var& x) { return matmul(x, x); }},
      {"matmul", "(4, 4)", [](const Var& x) { return matmul(transpose(x, 0, 1), x); }},
      {"matmul", "(4, 4)", [](const Var& x) { return matmul(x, transpose(x, 0, 1)); }},
      {"matmul", "(4, 4)", [](const Var& x) { return matmul(x.tape().constant(matrix(3, 4)), x); }},
      {"linear", "(4, 4)",
       [](const Var& x) { return linear(transpose(x, 0, 1), x.tape().constant(matrix(3, 4))); }},
      {"conv", "(1, 4, 4)",
       [](const Var& x) {
         return conv(unsqueeze(x, 0), x.tape().constant(reshape(matrix(8, 4), {2, 4, 4})));
       }},
      {"max_pool", "(1, 1, 4, 4)",
       [](const Var& x) { return max_pool(unsqueeze(unsqueeze(x, 0), 0), {}); }},
      {"avg_pool", "(1, 1, 4, 4)",
       [](const Var& x) { return avg_pool(unsqueeze(unsqueeze(x, 0), 0), {}); }},
      {"mean", "(4, 4)", batch_norm},
  };
}

}  // namespace

TEST_CASE("a private tape refuses to mix samples, naming the operation and the shape") {
  for (const Mixing& mixing : mixings()) {
    for (const bool wants_grad : {true, false}) {
      Tape tape({.private_data = true});
      const Var x = tape.input(matrix(4, 4), 0, wants_grad);
      INFO(mixing.op);
      CHECK(throws([&] { mixing.run(x); }, std::string(mixing.op) + ": combines samples"));
      CHECK(throws([&] { mixing.run(x); }, std::string("shape ") + mixing.shape + ", sample axis"));
    }
  }
}

TEST_CASE("an ordinary tape mixes samples, with right gradients of inputs and parameters") {
  for (const Mixing& mixing : mixings()) {
    Parameter w(matrix(4, 4));
    INFO(mixing.op);
    Tape tape;
    const Var x = tape.input(matrix(4, 4), 0, true);
    const Var y = mixing.run(mul(x, sum(tape.use(w), {0}, true)));
    CHECK(y.samples().is_mixed());
    PublicRandom random(12);
    const Tensor weights = uniform_values(random, y.shape());
    SumSink sink;
    tape.backward(sum(mul(y, tape.constant(weights))), sink);
    const Tensor direction = uniform_values(random, {4, 4});
    const auto dot = [&](const Tensor& g) { return sum(mul(g, direction)).item(); };
    const auto moved = [&](double step, bool parameter) {
      Tape other;
      const Tensor there = add(matrix(4, 4), scale(direction, step));
      w.value = parameter ? there : matrix(4, 4);
      const Var at = other.input(parameter ? matrix(4, 4) : there);
      return sum(mul(mixing.run(mul(at, sum(other.use(w), {0}, true))), other.constant(weights)))
          .value()
          .item();
    };
    constexpr double step = 1e-6;
    const double of_input = (moved(step, false) - moved(-step, false)) / (2 * step);
    const double of_parameter = (moved(step, true) - moved(-step, true)) / (2 * step);
    CHECK(dot(tape.grad(x)) == Approx(of_input).epsilon(1e-6).margin(1e-6));
    REQUIRE(sink.gradients().size() == 1);
    CHECK(dot(sink.gradients()[0].second) == Approx(of_parameter).epsilon(1e-6).margin(1e-6));
  }
}

TEST_CASE(
    "a frozen batch norm that computes batch statistics is refused, one with constants is not") {
  Tape tape({.private_data = true});
  Parameter scale(matrix(1, 4));
  scale.trainable = false;
  const Var x = tape.input(matrix(4, 4));
  CHECK(throws([&] { mul(batch_norm(x), tape.use(scale)); }, "mean: combines samples"));
  const Var y = mul(sub(x, tape.constant(matrix(1, 4))), tape.use(scale));
  CHECK(y.samples() == SampleAxis(0));
  CHECK_FALSE(y.needs_grad());
}

TEST_CASE("the sample axis follows permutes, reshapes and broadcasts") {
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({2, 3, 5, 7}), 1);
  CHECK(permute(x, {3, 1, 0, 2}).samples() == SampleAxis(1));
  CHECK(permute(x, {1, 3, 0, 2}).samples() == SampleAxis(0));
  CHECK(transpose(x, 1, -1).samples() == SampleAxis(3));
  CHECK(reshape(x, {2, 3, 35}).samples() == SampleAxis(1));
  CHECK(reshape(x, {1, 2, 3, -1}).samples() == SampleAxis(2));
  CHECK(unsqueeze(x, 0).samples() == SampleAxis(2));
  CHECK(unsqueeze(x, 2).samples() == SampleAxis(1));
  CHECK(expand(x, {4, -1, -1, -1, -1}).samples() == SampleAxis(2));
  CHECK(sum(x, {0, 2}).samples() == SampleAxis(0));
  CHECK(sum(x, {0, 2}, true).samples() == SampleAxis(1));
  CHECK(select(x, 0, 1).samples() == SampleAxis(0));
  CHECK(add(x, tape.constant(zeros({4, 1, 1, 1, 1}))).samples() == SampleAxis(2));
  CHECK(add(x, tape.input(zeros({3, 1, 1}))).samples() == SampleAxis(1));
  CHECK(sum_per_sample(x).shape() == Shape{3});
  CHECK(matmul(x, tape.constant(zeros({7, 2}))).samples() == SampleAxis(1));
}

TEST_CASE("axes named twice are refused") {
  // Counted twice, the sample axis would be lost.
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({2, 3}), 1);
  CHECK(throws([&] { sum(x, {0, 0}); }, "sum: axis 0 twice"));
  CHECK(throws([&] { mean(x, {0, -2}); }, "mean: axis 0 twice"));
  CHECK(throws([&] { norm(x, {-2, 0}); }, "norm: axis 0 twice"));
}

TEST_CASE("a batch of one sample keeps its sample axis through every reduction") {
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({3, 1, 1}), 1);
  for (const bool keepdim : {false, true}) {
    CHECK(logsumexp(x, {0}, keepdim).samples() == SampleAxis(keepdim ? 1 : 0));
    CHECK(sum(x, {0}, keepdim).samples() == SampleAxis(keepdim ? 1 : 0));
    CHECK(norm(x, {0, 2}, keepdim).samples() == SampleAxis(keepdim ? 1 : 0));
  }
}
