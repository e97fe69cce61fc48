// Less common layers over images and features. A size is given once for each spatial axis, or once
// for all.
#pragma once

#include <memory>
#include <optional>

#include "autograd/ops/resampling.h"
#include "nn/module.h"

namespace sotto::nn {

// conv_transpose() as a layer. Weight and bias start uniform in +-1 / sqrt(out / groups * kernel's
// size).
template <int axes>
class ConvTranspose final : public Module {
 public:
  ConvTranspose(std::int64_t in, std::int64_t out, const Shape& kernel,
                const ConvTransposeOptions& options = {}, bool with_bias = true);
  ConvTranspose(std::int64_t in, std::int64_t out, std::int64_t kernel,
                const ConvTransposeOptions& options = {}, bool with_bias = true)
      : ConvTranspose(in, out, Shape{kernel}, options, with_bias) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [in, out / groups, kernel...]
  std::unique_ptr<Parameter> bias;    // [out], or null

 private:
  ConvTransposeOptions options_;
};

using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;
extern template class ConvTranspose<1>;
extern template class ConvTranspose<2>;
extern template class ConvTranspose<3>;

// Interpolates to the given spatial sizes (sotto::upsample).
class Upsample final : public Module {
 public:
  explicit Upsample(const Shape& size, const UpsampleOptions& options = {})
      : size_(size), options_(options) {}
  Var forward(const Var& x) override { return upsample(x, size_, options_); }

 private:
  Shape size_;
  UpsampleOptions options_;
};

class AdaptiveMaxPool final : public Module {
 public:
  explicit AdaptiveMaxPool(const Shape& output) : output_(output) {}
  Var forward(const Var& x) override { return adaptive_max_pool(x, output_); }

 private:
  Shape output_;
};

class LpPool final : public Module {
 public:
  LpPool(double p, const PoolOptions& options) : p_(p), options_(options) {}
  Var forward(const Var& x) override { return lp_pool(x, p_, options_); }

 private:
  double p_;
  PoolOptions options_;
};

// max(0, x) + weight min(0, x), with one weight, or one for each of `parameters` channels;
// initially 0.25.
class PRelu final : public Module {
 public:
  explicit PRelu(std::int64_t parameters = 1);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override { visitor("weight", weight); }

  std::unique_ptr<Parameter> weight;
};

// y[.., o] = sum_ij x1[.., i] weight[o, i, j] x2[.., j] + bias[o]; both are initially uniform in
// +-1 / sqrt(in1).
class Bilinear final : public Module {
 public:
  Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias = true);
  // Uses x as both inputs.
  Var forward(const Var& x) override { return forward(x, x); }
  Var forward(const Var& x1, const Var& x2);
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [out, in1, in2]
  std::unique_ptr<Parameter> bias;    // [out], or null
};

class LocalResponseNorm final : public Module {
 public:
  explicit LocalResponseNorm(std::int64_t size, double alpha = 1e-4, double beta = 0.75,
                             double k = 1)
      : size_(size), alpha_(alpha), beta_(beta), k_(k) {}
  Var forward(const Var& x) override;

 private:
  std::int64_t size_;
  double alpha_, beta_, k_;
};

// x + inner(x).
class Residual final : public Module {
 public:
  template <std::derived_from<Module> M>
  explicit Residual(M inner) : inner_(std::make_unique<M>(std::move(inner))) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override { visitor("inner", *inner_); }

 private:
  std::unique_ptr<Module> inner_;
};

}  // namespace sotto::nn
