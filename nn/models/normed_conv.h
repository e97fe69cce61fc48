// The convolutions of image models: each has no bias, and a norm behind it.
#pragma once

#include <memory>

#include "autograd/ops/conv_pool.h"
#include "nn/module.h"

namespace sotto::nn {

// The kind of a model's norms.
struct ConvNorm {
  bool group = false;        // group normalisation; otherwise batch norms with frozen statistics
  std::int64_t groups = 32;  // of group normalisation, or fewer (norm_groups)
  double eps = 1e-5;         // added to the variance
};

// The largest divisor of the channels that is no greater than `most`.
std::int64_t norm_groups(std::int64_t channels, std::int64_t most);

// A convolution and its norm, which their owner shows by two names, one after the other.
struct NormedConv {
  NormedConv() = default;
  // A convolution with a square kernel.
  NormedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, const ConvOptions& options,
             const ConvNorm& norm);
  // The norm of the convolution of x.
  Var operator()(const Var& x) const { return (*norm)((*conv)(x)); }

  std::unique_ptr<Module> conv, norm;
};

}  // namespace sotto::nn
