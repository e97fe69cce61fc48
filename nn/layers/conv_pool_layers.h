// Convolution and pooling over [n, c, spatial...], with one to three spatial axes. A size is given
// once for each spatial axis, or once for all.
#pragma once

#include "autograd/ops/conv_pool.h"
#include "nn/module.h"

namespace sotto::nn {

// Cross-correlation. Weight and bias are initially uniform in +-1 / sqrt(in / groups * kernel
// size). Throws std::invalid_argument unless `groups` divides in and out.
template <int axes>
class Conv final : public Module {
 public:
  // Channels of input and output, and the kernel's sizes.
  Conv(std::int64_t in, std::int64_t out, const Shape& kernel, const ConvOptions& options = {},
       bool with_bias = true);
  Conv(std::int64_t in, std::int64_t out, std::int64_t kernel, const ConvOptions& options = {},
       bool with_bias = true)
      : Conv(in, out, Shape{kernel}, options, with_bias) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  const ConvOptions& options() const { return options_; }

  std::unique_ptr<Parameter> weight;  // [out, in / groups, kernel...]
  std::unique_ptr<Parameter> bias;    // [out], or null

 private:
  ConvOptions options_;
};

template <int axes>
// max_pool(): the largest element of each window.
class MaxPool final : public Module {
 public:
  explicit MaxPool(const PoolOptions& options) : options_(options) {}
  // Windows side by side: the stride is the size.
  explicit MaxPool(std::int64_t kernel) : MaxPool(PoolOptions{.kernel = {kernel}}) {}
  // One size and one stride for all axes.
  MaxPool(std::int64_t kernel, std::int64_t stride)
      : MaxPool(PoolOptions{.kernel = {kernel}, .stride = {stride}}) {}
  Var forward(const Var& x) override;

 private:
  PoolOptions options_;
};

template <int axes>
// avg_pool(): the mean of each window; PoolOptions says whether padding counts.
class AvgPool final : public Module {
 public:
  explicit AvgPool(const PoolOptions& options) : options_(options) {}
  // Windows side by side: the stride is the size.
  explicit AvgPool(std::int64_t kernel) : AvgPool(PoolOptions{.kernel = {kernel}}) {}
  // One size and one stride for all axes.
  AvgPool(std::int64_t kernel, std::int64_t stride)
      : AvgPool(PoolOptions{.kernel = {kernel}, .stride = {stride}}) {}
  Var forward(const Var& x) override;

 private:
  PoolOptions options_;
};

// Averages to an output of the given spatial sizes.
template <int axes>
class AdaptiveAvgPool final : public Module {
 public:
  // Sizes of the spatial axes of the output.
  explicit AdaptiveAvgPool(const Shape& output);
  // Sizes of the spatial axes of the output.
  explicit AdaptiveAvgPool(std::int64_t output) : AdaptiveAvgPool(Shape{output}) {}
  Var forward(const Var& x) override;

 private:
  Shape output_;
};

using Conv1d = Conv<1>;                        // one spatial axis
using Conv2d = Conv<2>;                        // two
using Conv3d = Conv<3>;                        // three
using MaxPool1d = MaxPool<1>;                  // one spatial axis
using MaxPool2d = MaxPool<2>;                  // two
using MaxPool3d = MaxPool<3>;                  // three
using AvgPool1d = AvgPool<1>;                  // one spatial axis
using AvgPool2d = AvgPool<2>;                  // two
using AvgPool3d = AvgPool<3>;                  // three
using AdaptiveAvgPool1d = AdaptiveAvgPool<1>;  // one spatial axis
using AdaptiveAvgPool2d = AdaptiveAvgPool<2>;  // two
using AdaptiveAvgPool3d = AdaptiveAvgPool<3>;  // three

extern template class Conv<1>;
extern template class Conv<2>;
extern template class Conv<3>;
extern template class MaxPool<1>;
extern template class MaxPool<2>;
extern template class MaxPool<3>;
extern template class AvgPool<1>;
extern template class AvgPool<2>;
extern template class AvgPool<3>;
extern template class AdaptiveAvgPool<1>;
extern template class AdaptiveAvgPool<2>;
extern template class AdaptiveAvgPool<3>;

}  // namespace sotto::nn
