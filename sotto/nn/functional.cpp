#include "sotto/nn/functional.h"

#include "sotto/autograd/elementwise.h"
#include "sotto/autograd/reductions.h"
#include "sotto/autograd/shape_ops.h"

namespace sotto::nn {

namespace {

// y weight + bias, both of y's last axes or, seen so, in `shape`.
Var scale_and_shift(Var y, const ScaleShift& affine, const Shape& shape) {
  for (const auto* part : {&affine.weight, &affine.bias}) {
    check(!*part || (*part)->value().numel() == shape.numel(),
          "normalisation: weight or bias of shape {} for an input of shape {}",
          *part ? (*part)->shape() : Shape{}, y.shape());
  }
  if (affine.weight) y = mul(y, reshape(*affine.weight, shape));
  if (affine.bias) y = add(y, reshape(*affine.bias, shape));
  return y;
}

void check_last_axes(const char* op, const Var& x, const Shape& normalized) {
  const int lead = x.rank() - normalized.rank();
  bool same = !normalized.empty() && lead >= 0;
  for (int i = 0; same && i < normalized.rank(); ++i) same = x.shape()[lead + i] == normalized[i];
  check(same, "{}: over the last axes {} of {}", op, normalized, x.shape());
}

}  // namespace

Var group_norm(const Var& x, std::int64_t groups, const ScaleShift& affine, double eps) {
  check(x.rank() >= 2, "group_norm: input {} has no channels", x.shape());
  const std::int64_t n = x.shape()[0];
  const std::int64_t c = x.shape()[1];
  check(groups >= 1 && c % groups == 0, "group_norm: {} groups of {} channels", groups, c);
  std::int64_t group = c / groups;
  for (int axis = 2; axis < x.rank(); ++axis) group *= x.shape()[axis];
  const Var y = normalize(reshape(x, {n, groups, group}), 1, eps);
  Shape channels = Shape::filled(x.rank() - 1, 1);
  channels[0] = c;
  return scale_and_shift(reshape(y, x.shape()), affine, channels);
}

Var instance_norm(const Var& x, const ScaleShift& affine, double eps) {
  check(x.rank() >= 3, "instance_norm: input {} is not [n, c, spatial...]", x.shape());
  return group_norm(x, x.shape()[1], affine, eps);
}

Var layer_norm(const Var& x, const Shape& normalized, const ScaleShift& affine, double eps) {
  check_last_axes("layer_norm", x, normalized);
  return scale_and_shift(normalize(x, normalized.rank(), eps), affine, normalized);
}

Var rms_norm(const Var& x, const Shape& normalized, const ScaleShift& affine, double eps) {
  check_last_axes("rms_norm", x, normalized);
  return scale_and_shift(normalize(x, normalized.rank(), eps, false), affine, normalized);
}

}  // namespace sotto::nn
