#include "autograd/ops/sequence/rotary.h"

#include <cmath>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op rotary_op("rotary", {.captures = Op::Captures::shared, .batchable = true});

// Turns the pairs by the angles, or back by them.
Tensor turned(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool back) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor x1 = x.slice(-1, 0, half), x2 = x.slice(-1, half, 2 * half);
  copy_into((back ? add : sub)(mul(x1, cosine), mul(x2, sine)), y.slice(-1, 0, half));
  copy_into((back ? sub : add)(mul(x2, cosine), mul(x1, sine)), y.slice(-1, half, 2 * half));
  return y;
}

}  // namespace

RotaryAngles rotary_angles(const Var& positions, const std::vector<double>& frequencies,
                           Dtype dtype) {
  check(positions.rank() == 2 && positions.dtype() == Dtype::i64,
        "rotary: positions {} {} where i64 [n, t] is needed", name(positions.dtype()),
        positions.shape());
  std::vector<double> cosines, sines;
  for (const std::int64_t position : positions.value().to_vector<std::int64_t>()) {
    for (const double frequency : frequencies) {
      cosines.push_back(std::cos(static_cast<double>(position) * frequency));
      sines.push_back(std::sin(static_cast<double>(position) * frequency));
    }
  }
  const Shape shape{positions.shape()[0], 1, positions.shape()[1],
                    static_cast<std::int64_t>(frequencies.size())};
  const auto on_tape = [&](const std::vector<double>& values, bool sine) {
    const Tensor rounded = to_dtype(Tensor::from(values, shape), dtype);
    const Var y =
        untracked(positions.tape(), rounded.to(positions.value().device()), positions.samples());
    if (tracing()) {
      explain_value("rotary_angles", {positions},
                    {{"frequencies", Tensor::from(frequencies, {shape[3]})}, {"sine", sine}}, y);
    }
    return y;
  };
  return {.cosine = on_tape(cosines, false), .sine = on_tape(sines, true)};
}

Var rotary(const Var& x, const RotaryAngles& angles) {
  const Shape& of = angles.cosine.shape();
  check(x.rank() >= 2 && x.shape().back() == 2 * of.back() && angles.sine.shape() == of,
        "rotary: values {} for angles {}", x.shape(), of);
  Shape half = x.shape();
  half[half.rank() - 1] = of.back();
  check(broadcast_shapes(rotary_op.name, half, of) == half, "rotary: values {} for angles {}",
        x.shape(), of);
  const std::vector<Var> inputs{x, angles.cosine, angles.sine};
  const SampleAxis samples = broadcast_samples(rotary_op, inputs, x.shape());
  check(!x.samples().is_shared() || !samples.batched(),
        "rotary: values {} are shared by samples whose angles {} differ", x.shape(), of);
  const Tensor cosine = to_dtype(angles.cosine.value(), x.dtype()),
               sine = to_dtype(angles.sine.value(), x.dtype());
  return x.tape().record(rotary_op, inputs, turned(x.value(), cosine, sine, false), samples,
                         [cosine, sine](const Tensor& dy, Adjoint& adjoint) {
                           adjoint.input(0, turned(dy, cosine, sine, true));
                         });
}

}  // namespace sotto
