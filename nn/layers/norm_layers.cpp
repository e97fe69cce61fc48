#include "nn/layers/norm_layers.h"

#include "autograd/ops/elementwise.h"
#include "autograd/ops/shape_ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"

namespace sotto::nn {

namespace {

using Owned = std::unique_ptr<Parameter>;

Owned constant_parameter(const Shape& shape, double value, bool wanted) {
  return wanted ? std::make_unique<Parameter>(full(shape, value)) : nullptr;
}

ScaleShift used(Tape& tape, const Owned& weight, const Owned& bias, bool writes_16bit = false) {
  ScaleShift affine{.writes_16bit = writes_16bit};
  if (weight) affine.weight = tape.use(*weight);
  if (bias) affine.bias = tape.use(*bias);
  return affine;
}

void check_channels(const char* op, const Var& x, std::int64_t channels) {
  check(x.rank() >= 2 && x.shape()[1] == channels, "{}: input {} without {} channels", op,
        x.shape(), channels);
}

}  // namespace

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, const NormOptions& options)
    : weight(constant_parameter({channels}, 1, options.affine)),
      bias(constant_parameter({channels}, 0, options.affine && options.bias)),
      groups_(groups),
      channels_(channels),
      eps_(options.eps),
      writes_16bit_(options.writes_16bit) {
  check(groups >= 1 && channels >= 1 && channels % groups == 0,
        "GroupNorm: {} groups of {} channels", groups, channels);
}

Var GroupNorm::forward(const Var& x) {
  check_channels("GroupNorm", x, channels_);
  return group_norm(x, groups_, used(x.tape(), weight, bias, writes_16bit_), eps_);
}

void GroupNorm::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

template <int axes>
InstanceNorm<axes>::InstanceNorm(std::int64_t channels, const InstanceNormOptions& options)
    : weight(constant_parameter({channels}, 1, options.affine)),
      bias(constant_parameter({channels}, 0, options.affine)),
      channels_(channels),
      eps_(options.eps) {}

template <int axes>
Var InstanceNorm<axes>::forward(const Var& x) {
  check_channels("InstanceNorm", x, channels_);
  check(x.rank() == axes + 2, "InstanceNorm{}d: input {} is not [n, c, {} spatial axes]", axes,
        x.shape(), axes);
  return instance_norm(x, used(x.tape(), weight, bias), eps_);
}

template <int axes>
void InstanceNorm<axes>::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

LayerNorm::LayerNorm(const Shape& normalized, const NormOptions& options)
    : weight(constant_parameter(normalized, 1, options.affine)),
      bias(constant_parameter(normalized, 0, options.affine && options.bias)),
      normalized_(normalized),
      eps_(options.eps),
      writes_16bit_(options.writes_16bit) {}

Var LayerNorm::forward(const Var& x) {
  return layer_norm(x, normalized_, used(x.tape(), weight, bias, writes_16bit_), eps_);
}

void LayerNorm::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

RMSNorm::RMSNorm(const Shape& normalized, const RmsNormOptions& options)
    : weight(constant_parameter(normalized, 1, options.affine)),
      normalized_(normalized),
      eps_(options.eps),
      writes_16bit_(options.writes_16bit) {}

Var RMSNorm::forward(const Var& x) {
  return rms_norm(x, normalized_, used(x.tape(), weight, nullptr, writes_16bit_), eps_);
}

void RMSNorm::visit(const Visitor& visitor) { visitor("weight", weight); }

Standardize::Standardize(std::int64_t columns) {
  check(columns >= 1, "Standardize: {} columns", columns);
  mean = std::make_unique<Parameter>(full({columns}, 0));
  deviation = std::make_unique<Parameter>(full({columns}, 1));
  freeze();
}

Var Standardize::forward(const Var& x) {
  const std::int64_t columns = mean->value.numel();
  check_channels("Standardize", x, columns);
  Shape shape = Shape::filled(x.rank() - 1, 1);
  shape[0] = columns;
  const auto by_column = [&](Parameter& p) { return reshape(x.tape().use(p), shape); };
  return (x - by_column(*mean)) / by_column(*deviation);
}

void Standardize::visit(const Visitor& visitor) {
  visitor("mean", mean);
  visitor("deviation", deviation);
}

Var LocalResponseNorm::forward(const Var& x) {
  return local_response_norm(x, size_, alpha_, beta_, k_);
}

}  // namespace sotto::nn
