// Gradients that the backward of an operation delivers: those that cannot be of the node's samples
// are refused, and shared inputs of mixed values get theirs.
#include "autograd/adjoint.h"

#include "autograd/check/op_run.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/segment.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

const Op wrong_op("wrong");

Tensor random_values(std::uint64_t stream, const Shape& shape) {
  PublicRandom random(61, stream);
  return to_dtype(uniform_values(random, shape), Dtype::f64);
}

// y = x W^T for x [n, T, d], with a backward of its own.
Var product(const Var& x, const Var& w, const Tape::Backward& backward) {
  const Shape& shape = x.shape();
  const Tensor rows = reshape(x.value(), {shape[0] * shape[1], shape[2]});
  const Tensor y =
      reshape(gemm(rows, w.value().transpose(0, 1)), {shape[0], shape[1], w.shape()[0]});
  return x.tape().record(wrong_op, {x, w}, y, x.samples(), backward);
}

// Runs backward from the sum of each sample's values.
void run_backward(const Tensor& x, Parameter& w, const Tape::Backward& backward) {
  Tape tape({.private_data = true});
  CollectSink sink;
  tape.backward(sum_per_sample(product(tape.input(x), tape.use(w), backward)), sink);
}

// The gradient of the sum of `loss` with respect to w, and by differences.
void check_gradient(const std::function<Var(Tape&, const Var&)>& loss, const Tensor& w) {
  const auto total = [&](const Tensor& at) {
    Tape tape;
    return values(sum(loss(tape, tape.constant(at))).value()).at(0);
  };
  Parameter parameter(w);
  Tape tape;
  SumSink sink;
  tape.backward(sum(loss(tape, tape.use(parameter))), sink);
  REQUIRE(sink.gradients().size() == 1);
  const std::vector<double> gradient = values(sink.gradients()[0].second);
  constexpr double step = 1e-5;
  for (std::size_t k = 0; k < gradient.size(); ++k) {
    std::vector<double> up = values(w), down = up;
    up[k] += step;
    down[k] -= step;
    const double slope =
        (total(Tensor::from(up, w.shape())) - total(Tensor::from(down, w.shape()))) / (2 * step);
    CHECK(gradient[k] == Approx(slope).epsilon(1e-6).margin(1e-8));
  }
}

}  // namespace

TEST_CASE("per-sample gradients have a row for each row of their node's value") {
  const Tensor x = random_values(1, {4, 3, 5});
  Parameter w(random_values(2, {2, 5}));
  const Tensor rows = reshape(x, {12, 1, 5});
  // Each position's gradient as if it were a sample's.
  const auto positions = [&](const Tensor& dy, Adjoint& adjoint) {
    adjoint.shared(1, PerSampleGrad::outer(reshape(contiguous(dy), {12, 1, 2}), rows, {2, 5}));
  };
  CHECK(throws([&] { run_backward(x, w, positions); },
               "wrong: gradients of 12 samples for shared input 1, where the result has 4"));
  const auto one = [](const Tensor&, Adjoint& adjoint) {
    adjoint.shared(1, PerSampleGrad::materialized(zeros({1, 2, 5}, Dtype::f64)));
  };
  CHECK(throws([&] { run_backward(x, w, one); }, "gradients of 1 samples for shared input 1"));
}

TEST_CASE("a shared input of a batched value gets no gradient without samples") {
  const Tensor x = random_values(3, {4, 3, 5});
  Parameter w(random_values(4, {2, 5}));
  const auto summed = [](const Tensor&, Adjoint& adjoint) {
    adjoint.input(1, zeros({2, 5}, Dtype::f64));
  };
  CHECK(throws([&] { run_backward(x, w, summed); },
               "input 1, which all samples share, has no samples; deliver it by shared()"));
}

TEST_CASE("a value computed from samples is not said to be shared by all") {
  Tape tape;
  Parameter w(random_values(5, {3}));
  const Var x = tape.input(random_values(6, {4, 3}));
  CHECK(throws(
      [&] { tape.record(wrong_op, {x}, x.value().select(0, 0), SampleAxis::shared(), nullptr); },
      "wrong: result (3) is said to be shared by all samples, and input (4, 3) is not"));
  CHECK(throws(
      [&] {
        segment([](const std::vector<Var>& v) { return std::vector{v[1] * v[1]}; },
                {x, tape.use(w)});
      },
      "is said to be shared by all samples"));
}

TEST_CASE("shared operands of mixed values get their gradients") {
  const Tensor x = random_values(7, {4, 3, 5}), ids = Tensor::from<std::int64_t>({2, 0, 1, 1}, {4});
  const auto mixed = [&](Tape& tape) {
    const Var in = tape.input(x);
    return in - mean(in, {0}, true);
  };
  check_gradient(
      [&](Tape& tape, const Var& w) {
        const Var keys = mixed(tape);
        return square(attention(w, keys, keys));
      },
      random_values(8, {4, 2, 5}));
  check_gradient(
      [&](Tape& tape, const Var& w) {
        const Var mixed_ids = tape.constant(ids, SampleAxis::mixed());
        return square(gather(w, 0, mixed_ids));
      },
      random_values(9, {3}));
}
