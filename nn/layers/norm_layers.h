// The normalisations of functional.h as layers. Weights are initially one, biases zero.
#pragma once

#include "nn/module.h"

namespace sotto::nn {

struct NormOptions {
  double eps = 1e-5;          // added to the variance
  bool affine = true;         // weight and bias
  bool bias = true;           // bias, if affine
  bool writes_16bit = false;  // results have a 16-bit tape's precision: if products alone read them
};

// nn::group_norm of x [n, c, ...]. Throws std::invalid_argument unless `groups` divides `channels`.
class GroupNorm final : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, const NormOptions& options = {});
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [c], or null
  std::unique_ptr<Parameter> bias;    // [c], or null

 private:
  std::int64_t groups_;
  std::int64_t channels_;
  double eps_;  // added to the variance
  bool writes_16bit_;
};

struct InstanceNormOptions {
  double eps = 1e-5;    // added to the variance
  bool affine = false;  // weight and bias
};

// nn::instance_norm of x [n, c, spatial...]: each channel of each sample by itself.
template <int axes>
class InstanceNorm final : public Module {
 public:
  explicit InstanceNorm(std::int64_t channels, const InstanceNormOptions& options = {});
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [c], or null
  std::unique_ptr<Parameter> bias;    // [c], or null

 private:
  std::int64_t channels_;
  double eps_;  // added to the variance
};

using InstanceNorm1d = InstanceNorm<1>;  // one spatial axis
using InstanceNorm2d = InstanceNorm<2>;  // two
using InstanceNorm3d = InstanceNorm<3>;  // three

extern template class InstanceNorm<1>;
extern template class InstanceNorm<2>;
extern template class InstanceNorm<3>;

// nn::layer_norm over the last axes, of sizes `normalized`.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(const Shape& normalized, const NormOptions& options = {});
  explicit LayerNorm(std::int64_t features, const NormOptions& options = {})
      : LayerNorm(Shape{features}, options) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [normalized...], or null
  std::unique_ptr<Parameter> bias;    // [normalized...], or null

 private:
  Shape normalized_;
  double eps_;  // added to the variance
  bool writes_16bit_;
};

struct RmsNormOptions {
  double eps = 1e-6;          // added to the mean square
  bool affine = true;         // weight
  bool writes_16bit = false;  // results have a 16-bit tape's precision: if products alone read them
};

// nn::rms_norm over the last axes, of sizes `normalized`.
class RMSNorm final : public Module {
 public:
  explicit RMSNorm(const Shape& normalized, const RmsNormOptions& options = {});
  explicit RMSNorm(std::int64_t features, const RmsNormOptions& options = {})
      : RMSNorm(Shape{features}, options) {}
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> weight;  // [normalized...], or null

 private:
  Shape normalized_;
  double eps_;  // added to the mean square
  bool writes_16bit_;
};

// (x - mean) / deviation for each column, axis 1 of x [n, columns, ...]. Mean and deviation are
// frozen, initially 0 and 1, and saved with the model: public constants, or released privately by
// standardize() (dp/engine/standardize.h).
class Standardize final : public Module {
 public:
  // Throws std::invalid_argument unless columns >= 1.
  explicit Standardize(std::int64_t columns);
  Var forward(const Var& x) override;
  void visit(const Visitor& visitor) override;

  std::unique_ptr<Parameter> mean;       // [columns]
  std::unique_ptr<Parameter> deviation;  // [columns]
};

// nn::local_response_norm over `size` adjacent channels.
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

}  // namespace sotto::nn
