#include "nn/functional.h"

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/normalization.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"

namespace sotto::nn {

namespace {

void check_last_axes(const char* op, const Var& x, const Shape& normalized) {
  const int lead = x.rank() - normalized.rank();
  bool same = !normalized.empty() && lead >= 0;
  for (int i = 0; same && i < normalized.rank(); ++i) same = x.shape()[lead + i] == normalized[i];
  check(same, "{}: normalized shape {} is not that of the last axes of {}", op, normalized,
        x.shape());
}

}  // namespace

Var group_norm(const Var& x, std::int64_t groups, const ScaleShift& affine, double eps) {
  check(x.rank() >= 2, "group_norm: input {} has no channels", x.shape());
  const std::int64_t c = x.shape()[1];
  check(groups >= 1 && c % groups == 0, "group_norm: {} groups of {} channels", groups, c);
  return normalize_groups(x, groups, eps, affine);
}

Var instance_norm(const Var& x, const ScaleShift& affine, double eps) {
  check(x.rank() >= 3, "instance_norm: input {} is not [n, c, spatial...]", x.shape());
  return group_norm(x, x.shape()[1], affine, eps);
}

Var layer_norm(const Var& x, const Shape& normalized, const ScaleShift& affine, double eps) {
  check_last_axes("layer_norm", x, normalized);
  return normalize(x, normalized.rank(), eps, true, affine);
}

Var rms_norm(const Var& x, const Shape& normalized, const ScaleShift& affine, double eps) {
  check_last_axes("rms_norm", x, normalized);
  return normalize(x, normalized.rank(), eps, false, affine);
}

Var local_response_norm(const Var& x, std::int64_t size, double alpha, double beta, double k) {
  check(x.rank() >= 3 && size >= 1, "local_response_norm: input {} over {} channels", x.shape(),
        size);
  // The window reaches size / 2 channels down and (size - 1) / 2 up; channels beyond the ends are
  // 0.
  const std::int64_t channels = x.shape()[1];
  std::vector<double> window;
  for (std::int64_t i = 0; i < channels * channels; ++i) {
    const std::int64_t distance = i % channels - i / channels;
    window.push_back(distance >= -(size / 2) && distance <= (size - 1) / 2);
  }
  const Var sums = map_axis(square(x), 1, Tensor::from(window, {channels, channels}));
  return x * pow(affine(sums, alpha / static_cast<double>(size), k), -beta);
}

Var prelu(const Var& x, const Var& weight) {
  const std::int64_t count = weight.value().numel();
  check(count == 1 || (x.rank() >= 2 && x.shape()[1] == count), "prelu: weight {} for the input {}",
        weight.shape(), x.shape());
  Var w = weight;
  if (count > 1) {
    Shape channels = Shape::filled(x.rank() - 1, 1);
    channels[0] = count;
    w = reshape(weight, channels);
  }
  return relu(x) - w * relu(affine(x, -1, 0));
}

// The products x1[i] x2[j] are flattened to one axis (i, j) and multiplied by the flattened weight.
Var bilinear(const Var& x1, const Var& x2, const Var& weight, const std::optional<Var>& bias) {
  check(weight.rank() == 3 && weight.shape()[1] == x1.shape().back() &&
            weight.shape()[2] == x2.shape().back(),
        "bilinear: inputs {} and {} with weight {}", x1.shape(), x2.shape(), weight.shape());
  const Var products = unsqueeze(x1, -1) * unsqueeze(x2, -2);
  return linear(flatten(products, -2, -1), flatten(weight, 1, 2), bias);
}

Var standardized_weight(const Var& w, double eps, const std::optional<Var>& gain) {
  check(w.rank() >= 2, "standardized_weight: weight {}", w.shape());
  if (!gain) return normalize(w, w.rank() - 1, eps);
  // Rows are channels of one image, each a group of its own.
  Shape image = w.shape();
  image.insert(0, 1);
  return reshape(normalize_groups(reshape(w, image), w.shape()[0], eps, {*gain}), w.shape());
}

Var normalized_weight(const Var& v, const Var& g) {
  check(v.rank() >= 2 && g.value().numel() == v.shape()[0],
        "normalized_weight: {} factors for the weight {}", g.shape(), v.shape());
  Shape rest, column = Shape::filled(v.rank(), 1);
  column[0] = v.shape()[0];
  for (int axis = 1; axis < v.rank(); ++axis) rest.push_back(axis);
  return v * (reshape(g, column) / norm(v, rest, true));
}

}  // namespace sotto::nn
