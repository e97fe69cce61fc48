// Independence of samples: every way of mixing them is refused on a private tape when it is
// recorded, and has a correct gradient on an ordinary one.
#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
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

namespace {

constexpr const char* beside_shared =
    "with a row for each sample, beside a value that all samples share";

Tensor integers(std::int64_t n, std::int64_t value) {
  return Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(n), value), {n});
}

// The mean over 4 samples of what each makes with its own row of a plain tensor; x [4, 3].
std::vector<Mixing> plain_rows() {
  const auto gru = [](const Var& x, std::int64_t steps) {
    Tape& tape = x.tape();
    const RecurrentWeights w{tape.constant(zeros({3, 1}, x.dtype())),
                             tape.constant(zeros({3, 1}, x.dtype()))};
    const SequenceOptions options{.lengths = integers(4, 2)};
    const Var sequence = unsqueeze(x, 2);
    return steps == 0 ? recurrent(Cell::gru, sequence, w, {}, {}, options).h
                      : recurrent_in_segments(steps, Cell::gru, sequence, w, {}, {}, options).h;
  };
  return {
      {"cross_entropy: targets ", "",
       [](const Var& x) { return cross_entropy_elements(x, integers(4, 1)); }},
      {"nll_loss: targets ", "",
       [](const Var& x) { return nll_loss(x, integers(4, 1), {}, Within::none); }},
      {"ctc_loss: targets and lengths ", "",
       [](const Var& x) {
         const Var steps = permute(unsqueeze(x, 1), {1, 0, 2});
         return ctc_loss(steps, reshape(integers(4, 1), {4, 1}), integers(4, 1), integers(4, 1));
       }},
      {"gru: lengths ", "", [gru](const Var& x) { return gru(x, 0); }},
      {"gru: lengths ", "", [gru](const Var& x) { return gru(x, 2); }}};
}

}  // namespace

TEST_CASE("a private tape refuses plain tensors of rows beside shared values") {
  Parameter logits(matrix(1, 3));
  for (const Mixing& one : plain_rows()) {
    INFO(one.op);
    const auto beside = [&](Tape& tape, const Var& x, bool in_segment) {
      tape.input(matrix(4, 1));
      const auto run = [&](const Var& v) { return mean(one.run(v)); };
      return in_segment ? segment(run, x) : run(x);
    };
    for (const bool in_segment : {false, true}) {
      Tape tape({.private_data = true}), ordinary;
      const Var trained = expand(tape.use(logits), {4, 3}), fixed = tape.constant(matrix(4, 3));
      const std::string text = std::string(one.op) + beside_shared;
      CHECK(throws([&] { beside(tape, trained, in_segment); }, text));
      CHECK(throws([&] { beside(tape, fixed, in_segment); }, text));
      const Var x = expand(ordinary.use(logits), {4, 3});
      CHECK_NOTHROW(beside(ordinary, x, in_segment));
    }
    Tape tape({.private_data = true});
    CHECK(one.run(tape.input(matrix(4, 3))).samples() == SampleAxis(0));
  }
}

TEST_CASE("attention masks of samples never get into a shared result") {
  Tape tape({.private_data = true});
  const Var x = tape.constant(matrix(3, 2)), rows = tape.constant(zeros({4, 3, 2}, Dtype::f64)),
            mask = tape.input(reshape(integers(12, 0), {4, 1, 3}));
  for (const double dropout : {0.0, 0.5}) {
    CHECK(throws([&] { attention(x, x, x, {mask}, {.dropout = dropout}); }, "attention: mask"));
    CHECK(throws([&] { attention(rows, x, x, {mask}, {.dropout = dropout}); },
                 "attention: combines samples"));
  }
  CHECK(attention_weights(x, x, {mask}).samples() == SampleAxis(0));
}

TEST_CASE("an operation that does not say what it captures has no shared result") {
  static const Op silent_op("silent"), mixing_op("mixing", {.captures = Op::Captures::shared}),
      open_op("open", {.captures = Op::Captures::shared});
  const auto doubled = [](const Op& op, const Var& x, SampleAxis samples) {
    return x.tape().record(op, {x}, scale(x.value(), 2), samples,
                           [](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, dy); });
  };
  Parameter w(matrix(4, 4));
  Tape tape({.private_data = true}), ordinary;
  const Var x = tape.input(matrix(4, 4)), shared = tape.use(w);
  CHECK(doubled(silent_op, x, x.samples()).samples() == SampleAxis(0));
  CHECK(throws([&] { doubled(silent_op, shared, SampleAxis::shared()); },
               std::string("silent: tensors that it may capture, ") + beside_shared));
  CHECK(doubled(open_op, shared, SampleAxis::shared()).needs_grad());
  CHECK(doubled(silent_op, ordinary.use(w), SampleAxis::shared()).needs_grad());
  // Nor does a private tape take a mixed result from an op that did not ask it.
  CHECK(throws([&] { doubled(mixing_op, x, SampleAxis::mixed()); }, "mixing: combines samples"));
  CHECK(doubled(mixing_op, ordinary.input(matrix(4, 4)), SampleAxis::mixed()).samples().is_mixed());
}

TEST_CASE("a private tape sums no gradient over its samples") {
  Tape tape({.private_data = true}), ordinary;
  const auto constant = [](Tape& on) {
    return on.constant(matrix(1, 4), SampleAxis::shared(), true);
  };
  CHECK(
      throws([&] { constant(tape); }, "constant: the gradient of a value (1, 4) that all samples"));
  CHECK(throws(
      [&] {
        segment([&](const Var& v) { return v * constant(v.tape()); }, tape.input(matrix(4, 4)));
      },
      "constant: the gradient of a value"));
  CHECK(constant(ordinary).needs_grad());
}
