#include "nn/layers/resampling_layers.h"

#include <cmath>
#include <optional>

#include "nn/init.h"

namespace sotto::nn {

template <int axes>
ConvTranspose<axes>::ConvTranspose(std::int64_t in, std::int64_t out, const Shape& kernel,
                                   const ConvTransposeOptions& options, bool with_bias)
    : options_(options) {
  const std::int64_t groups = options.groups;
  check(in >= 1 && out >= 1 && groups >= 1 && in % groups == 0 && out % groups == 0,
        "ConvTranspose{}d: {} channels to {} in {} groups", axes, in, out, groups);
  check(kernel.rank() == 1 || kernel.rank() == axes, "ConvTranspose{}d: a kernel of sizes {}", axes,
        kernel);
  Shape shape{in, out / groups};
  for (int i = 0; i < axes; ++i) shape.push_back(kernel.rank() == 1 ? kernel[0] : kernel[i]);
  const double bound = 1 / std::sqrt(static_cast<double>(fans(shape).in));
  weight = std::make_unique<Parameter>(random_uniform(shape, -bound, bound));
  if (with_bias) bias = std::make_unique<Parameter>(random_uniform({out}, -bound, bound));
}

template <int axes>
Var ConvTranspose<axes>::forward(const Var& x) {
  check(x.rank() == axes + 2, "ConvTranspose{}d: input {} is not [n, c, {} spatial axes]", axes,
        x.shape(), axes);
  Tape& tape = x.tape();
  const Var w = tape.use(*weight);
  return conv_transpose(x, w, bias ? std::optional(tape.use(*bias)) : std::nullopt, options_);
}

template <int axes>
void ConvTranspose<axes>::visit(const Visitor& visitor) {
  visitor("weight", weight);
  visitor("bias", bias);
}

template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace sotto::nn
