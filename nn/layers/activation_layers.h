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

using Relu = Activation<functors::Relu>;
using Selu = Activation<functors::Selu>;
using Gelu = Activation<functors::Gelu>;
using GeluTanh = Activation<functors::GeluTanh>;
using Sigmoid = Activation<functors::Sigmoid>;
using Silu = Activation<functors::Silu>;
using Tanh = Activation<functors::Tanh>;
using Mish = Activation<functors::Mish>;
using LogSigmoid = Activation<functors::LogSigmoid>;
using Softsign = Activation<functors::Softsign>;
using Hardswish = Activation<functors::Hardswish>;
using Hardsigmoid = Activation<functors::Hardsigmoid>;

struct LeakyRelu final : Activation<functors::LeakyRelu> {
  explicit LeakyRelu(double slope = 0.01) : Activation({slope}) {}
};
struct Elu final : Activation<functors::Elu> {
  explicit Elu(double alpha = 1) : Activation({alpha}) {}
};
struct Celu final : Activation<functors::Celu> {
  explicit Celu(double alpha = 1) : Activation({alpha}) {}
};
struct Softplus final : Activation<functors::Softplus> {
  explicit Softplus(double beta = 1, double threshold = 20) : Activation({beta, threshold}) {}
};
struct Hardtanh final : Activation<functors::Clamp> {
  explicit Hardtanh(double low = -1, double high = 1) : Activation({low, high}) {}
};
struct Hardshrink final : Activation<functors::Hardshrink> {
  explicit Hardshrink(double limit = 0.5) : Activation({limit}) {}
};
struct Softshrink final : Activation<functors::Softshrink> {
  explicit Softshrink(double limit = 0.5) : Activation({limit}) {}
};
struct Threshold final : Activation<functors::Threshold> {
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
struct Relu6 final : Activation<functors::Clamp> {
  Relu6() : Activation({0, 6}) {}
};

}  // namespace sotto::nn
