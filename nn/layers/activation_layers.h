// Elementwise nonlinearities as modules. The formulas are in kernels/functors.
#pragma once

#include <memory>

#include "autograd/ops/elementwise.h"
#include "nn/module.h"

namespace sotto::nn {

// An elementwise function as a module: Activation<relu>.
template <Var (*function)(Var)>
struct Activation : Module {
  Var forward(const Var& x) override { return function(x); }
};

struct Relu final : Activation<relu> {};
struct Relu6 final : Activation<relu6> {};
struct Selu final : Activation<selu> {};
struct Gelu final : Activation<gelu> {};
struct GeluTanh final : Activation<gelu_tanh> {};
struct Sigmoid final : Activation<sigmoid> {};
struct Silu final : Activation<silu> {};
struct Tanh final : Activation<tanh> {};
struct Mish final : Activation<mish> {};
struct LogSigmoid final : Activation<logsigmoid> {};
struct Softsign final : Activation<softsign> {};
struct Hardswish final : Activation<hardswish> {};
struct Hardsigmoid final : Activation<hardsigmoid> {};
struct Tanhshrink final : Activation<tanhshrink> {};

// Functions with constants, whose meaning is that of the function of the same name.
class LeakyRelu final : public Module {
 public:
  // Slope below 0.
  explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
  Var forward(const Var& x) override { return leaky_relu(x, slope_); }

 private:
  double slope_;
};
// x where x > 0, else alpha (e^x - 1).
class Elu final : public Module {
 public:
  explicit Elu(double alpha = 1) : alpha_(alpha) {}
  Var forward(const Var& x) override { return elu(x, alpha_); }

 private:
  double alpha_;
};
// max(0, x) + min(0, alpha (e^{x / alpha} - 1)).
class Celu final : public Module {
 public:
  explicit Celu(double alpha = 1) : alpha_(alpha) {}
  Var forward(const Var& x) override { return celu(x, alpha_); }

 private:
  double alpha_;
};
// ln(1 + e^{beta x}) / beta; x where beta x > threshold.
class Softplus final : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Var forward(const Var& x) override { return softplus(x, beta_, threshold_); }

 private:
  double beta_, threshold_;
};
// clamp(): low if x < low, high if x > high, else x.
class Hardtanh final : public Module {
 public:
  explicit Hardtanh(double low = -1, double high = 1) : low_(low), high_(high) {}
  Var forward(const Var& x) override { return hardtanh(x, low_, high_); }

 private:
  double low_, high_;
};
// x where |x| > limit, else 0.
class Hardshrink final : public Module {
 public:
  explicit Hardshrink(double limit = 0.5) : limit_(limit) {}
  Var forward(const Var& x) override { return hardshrink(x, limit_); }

 private:
  double limit_;
};
// x moved towards 0 by limit, and 0 within it.
class Softshrink final : public Module {
 public:
  explicit Softshrink(double limit = 0.5) : limit_(limit) {}
  Var forward(const Var& x) override { return softshrink(x, limit_); }

 private:
  double limit_;
};
// x where x > limit, else the other value.
class Threshold final : public Module {
 public:
  // Limit, and the value at and below it.
  Threshold(double limit, double otherwise) : limit_(limit), otherwise_(otherwise) {}
  Var forward(const Var& x) override { return threshold(x, limit_, otherwise_); }

 private:
  double limit_, otherwise_;
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

// max(0, x) + weight min(0, x), with one weight, or one for each of `parameters` channels;
// initially 0.25.
class PRelu final : public Module {
 public:
  // 1, or the number of channels.
  explicit PRelu(std::int64_t parameters = 1);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override { visitor("weight", weight); }

  // [1] or [channels].
  std::unique_ptr<Parameter> weight;
};

}  // namespace sotto::nn
