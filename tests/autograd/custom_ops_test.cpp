// The operation and the layer of docs/how-to/write-a-layer-or-op.md, written as a user of the
// library would write them, satisfy the laws of the library's own operations.
#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sample_axis_rules.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/check/check_layer.h"
#include "nn/init.h"
#include "sotto.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

// OPERATION
// y = x^3
const Op cube_op("cube");

Var cube(const Var& x) {
  const Tensor square = mul(x.value(), x.value());
  const auto backward = [square](const Tensor& dy, Adjoint& adjoint) {
    adjoint.input(0, mul(dy, scale(square, 3)));
  };
  return x.tape().record(cube_op, {x}, mul(square, x.value()), x.samples(), backward);
}
// OPERATION

// WEIGHTED
// y[n, t, o] = sum_i x[n, t, i] w[o, i], with a weight w that all samples share
const Op project_op("project");

Var project(const Var& x, const Var& w) {
  const SampleAxis samples = preserve_sample_axis(project_op, x, {-1});
  const Tensor in = x.value(), weight = w.value();
  const auto backward = [in, weight, samples](const Tensor& dy, Adjoint& adjoint) {
    adjoint.input(0, gemm(dy, weight));
    adjoint.shared(1, PerSampleGrad::outer(by_sample(dy, samples, 1), by_sample(in, samples, 1),
                                           weight.shape()));
  };
  return x.tape().record(project_op, {x, w}, gemm(in, weight.transpose(0, 1)), samples, backward);
}
// WEIGHTED

// LAYER
// y = gain * cube(x weight^T)
class CubicLinear final : public nn::Module {
 public:
  CubicLinear(std::int64_t in, std::int64_t out)
      : weight(std::make_unique<Parameter>(nn::xavier_uniform({out, in}))),
        gain(std::make_unique<Parameter>(full({out}, 1))) {}

  Var forward(const Var& x) override {
    Tape& tape = x.tape();
    return tape.use(*gain) * cube(linear(x, tape.use(*weight)));
  }

  void visit(const nn::Visitor& visitor) override {
    visitor("weight", weight);
    visitor("gain", gain);
  }

  std::unique_ptr<Parameter> weight;  // [out, in]
  std::unique_ptr<Parameter> gain;    // [out]
};
// LAYER

}  // namespace

TEST_CASE("a user's operation and layer obey the laws") {
  nn::manual_seed(8);
  // CHECKS
  const auto values = [](PublicRandom& random) {
    return testing::uniform_values(random, {3, 5, 4});
  };
  const auto instance = [&](PublicRandom& random) {
    return testing::Instance{{{values(random), 0}},
                             [](const std::vector<Var>& x) { return cube(x[0]); }};
  };
  testing::check_op({"cube", "any values", instance});
  CubicLinear layer(4, 3);
  testing::check_layer(layer, values);
  // CHECKS
}

TEST_CASE("a user's operation with a weight obeys the laws") {
  testing::check_op({"project", "rows along axis 0", [](PublicRandom& random) {
                       return testing::Instance{
                           {{testing::uniform_values(random, {3, 5, 4}), 0},
                            {testing::uniform_values(random, {2, 4}), SampleAxis::shared()}},
                           [](const std::vector<Var>& x) { return project(x[0], x[1]); }};
                     }});
}

TEST_CASE("a check leaves a layer unchanged") {
  CubicLinear layer(4, 3);
  const Tensor before = layer.weight->value;
  testing::check_layer(layer,
                       [](PublicRandom& random) {
                         return testing::uniform_values(random, {2, 4});
                       },
                       {.instances = 1});
  CHECK(layer.weight->value.dtype() == Dtype::f32);
  CHECK(layer.weight->value.to_vector<float>() == before.to_vector<float>());
}
