// Elementwise nonlinearities as modules. The formulas are in kernels/functors/functors.h.
#pragma once

#include "autograd/ops/elementwise.h"
#include "nn/module.h"

namespace sotto::nn {

template <class F>
class Activation : public Module {
 public:
  explicit Activation(Constants constants = {}) : constants_(constants) {}
  Var forward(const Var& x) override { return apply<F>(x, constants_); }

 private:
  Constants constants_;
};

using Relu = Activation<sotto::Relu>;
using Selu = Activation<sotto::Selu>;
using Gelu = Activation<sotto::Gelu>;
using GeluTanh = Activation<sotto::GeluTanh>;
using Sigmoid = Activation<sotto::Sigmoid>;
using Silu = Activation<sotto::Silu>;
using Tanh = Activation<sotto::Tanh>;
using Mish = Activation<sotto::Mish>;
using LogSigmoid = Activation<sotto::LogSigmoid>;
using Softsign = Activation<sotto::Softsign>;
using Hardswish = Activation<sotto::Hardswish>;
using Hardsigmoid = Activation<sotto::Hardsigmoid>;

struct LeakyRelu final : Activation<sotto::LeakyRelu> {
  explicit LeakyRelu(double slope = 0.01) : Activation({slope}) {}
};
struct Elu final : Activation<sotto::Elu> {
  explicit Elu(double alpha = 1) : Activation({alpha}) {}
};
struct Celu final : Activation<sotto::Celu> {
  explicit Celu(double alpha = 1) : Activation({alpha}) {}
};
struct Softplus final : Activation<sotto::Softplus> {
  explicit Softplus(double beta = 1, double threshold = 20) : Activation({beta, threshold}) {}
};
struct Hardtanh final : Activation<sotto::Clamp> {
  explicit Hardtanh(double low = -1, double high = 1) : Activation({low, high}) {}
};
struct Hardshrink final : Activation<sotto::Hardshrink> {
  explicit Hardshrink(double limit = 0.5) : Activation({limit}) {}
};
struct Softshrink final : Activation<sotto::Softshrink> {
  explicit Softshrink(double limit = 0.5) : Activation({limit}) {}
};
struct Threshold final : Activation<sotto::Threshold> {
  Threshold(double limit, double otherwise) : Activation({limit, otherwise}) {}
};
struct Tanhshrink final : Module {
  Var forward(const Var& x) override { return tanhshrink(x); }
};
// scale sigmoid(temperature x) - offset (Papernot et al. 2021).
class TemperedSigmoid final : public Module {
 public:
  explicit TemperedSigmoid(double scale = 2, double temperature = 2, double offset = 1)
      : scale_(scale), temperature_(temperature), offset_(offset) {}
  Var forward(const Var& x) override { return tempered_sigmoid(x, scale_, temperature_, offset_); }

 private:
  double scale_, temperature_, offset_;
};
struct Relu6 final : Activation<sotto::Clamp> {
  Relu6() : Activation({0, 6}) {}
};

}  // namespace sotto::nn
