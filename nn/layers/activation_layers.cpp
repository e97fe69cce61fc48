#include "nn/layers/activation_layers.h"

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"

namespace sotto::nn {

PRelu::PRelu(std::int64_t parameters) {
  check(parameters >= 1, "PRelu: {} parameters", parameters);
  constexpr double start = 0.25;
  weight = std::make_unique<Parameter>(full({parameters}, start));
}

Var PRelu::forward(const Var& x) { return prelu(x, x.tape().use(*weight)); }

}  // namespace sotto::nn
