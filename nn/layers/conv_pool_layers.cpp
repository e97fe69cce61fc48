#include "nn/layers/conv_pool_layers.h"

#include <cmath>

#include "nn/init.h"

namespace sotto::nn {

namespace {

// Returns one size for each axis.
Shape for_each_axis(const char* op, const Shape& sizes, int axes) {
  check(sizes.rank() == 1 || sizes.rank() == axes, "{}: sizes {} for {} spatial axes", op, sizes,
        axes);
  for (const std::int64_t size : sizes) check(size >= 1, "{}: sizes {} below 1", op, sizes);
  return sizes.rank() == axes ? sizes : Shape::filled(axes, sizes[0]);
}

void check_rank(const char* op, const Var& x, int axes) {
  check(x.rank() == axes + 2, "{}{}d: input {} is not [n, c, {} spatial axes]", op, axes, x.shape(),
        axes);
}

}  // namespace

template <int axes>
Conv<axes>::Conv(std::int64_t in, std::int64_t out, const Shape& kernel, const ConvOptions& options,
                 bool with_bias)
    : options_(options) {
  const std::int64_t groups = options.groups;
  check(in >= 1 && out >= 1 && groups >= 1 && in % groups == 0 && out % groups == 0,
        "Conv{}d: {} channels to {} in {} groups", axes, in, out, groups);
  Shape shape{out, in / groups};
  for (const std::int64_t size : for_each_axis("Conv", kernel, axes)) shape.push_back(size);
  const double bound = 1 / std::sqrt(static_cast<double>(fans(shape).in));
  weight = std::make_unique<Parameter>(random_uniform(shape, -bound, bound));
  if (with_bias) bias = std::make_unique<Parameter>(random_uniform({out}, -bound, bound));
}

template <int axes>
Var Conv<axes>::forward(const Var& x) {
  check_rank("Conv", x, axes);
  Tape& tape = x.tape();
  const Var w = tape.use(*weight);
  return conv(x, w, bias ? std::optional(tape.use(*bias)) : std::nullopt, options_);
}

template <int axes>
void Conv<axes>::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

template <int axes>
Var MaxPool<axes>::forward(const Var& x) {
  check_rank("MaxPool", x, axes);
  return max_pool(x, options_);
}

template <int axes>
Var AvgPool<axes>::forward(const Var& x) {
  check_rank("AvgPool", x, axes);
  return avg_pool(x, options_);
}

template <int axes>
AdaptiveAvgPool<axes>::AdaptiveAvgPool(const Shape& output)
    : output_(for_each_axis("AdaptiveAvgPool", output, axes)) {}

template <int axes>
Var AdaptiveAvgPool<axes>::forward(const Var& x) {
  check_rank("AdaptiveAvgPool", x, axes);
  return adaptive_avg_pool(x, output_);
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;
template class MaxPool<1>;
template class MaxPool<2>;
template class MaxPool<3>;
template class AvgPool<1>;
template class AvgPool<2>;
template class AvgPool<3>;
template class AdaptiveAvgPool<1>;
template class AdaptiveAvgPool<2>;
template class AdaptiveAvgPool<3>;

}  // namespace sotto::nn
