// Layers that change the size of images [n, c, spatial...]: transposed convolution, interpolation,
// and further kinds of pooling. A size is given once for each spatial axis, or once for all.
#pragma once

#include <memory>

#include "autograd/ops/resampling.h"
#include "nn/module.h"

namespace sotto::nn {

// conv_transpose() as a layer. Weight and bias start uniform in +-1 / sqrt(out / groups * kernel's
// size).
template <int axes>
class ConvTranspose final : public Module {
 public:
  // Channels of input and output, and the kernel's sizes.
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

using ConvTranspose1d = ConvTranspose<1>;  // one spatial axis
using ConvTranspose2d = ConvTranspose<2>;  // two
using ConvTranspose3d = ConvTranspose<3>;  // three
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

// adaptive_max_pool(): the maxima of windows that divide the image into the given spatial sizes.
class AdaptiveMaxPool final : public Module {
 public:
  explicit AdaptiveMaxPool(const Shape& output) : output_(output) {}
  Var forward(const Var& x) override { return adaptive_max_pool(x, output_); }

 private:
  Shape output_;
};

// lp_pool(): the p-norm of each window, (sum x^p)^(1 / p).
class LpPool final : public Module {
 public:
  // p >= 1; window, stride and padding.
  LpPool(double p, const PoolOptions& options) : p_(p), options_(options) {}
  Var forward(const Var& x) override { return lp_pool(x, p_, options_); }

 private:
  double p_;
  PoolOptions options_;
};

}  // namespace sotto::nn
