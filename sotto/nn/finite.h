// Gradients that updates refuse.
#pragma once

#include "sotto/autograd/parameter.h"

namespace sotto::nn {

// Throws std::invalid_argument, with the parameter's shape, when a gradient, or a part of one,
// holds NaN or infinity.
void check_finite(const Tensor& grad, const Parameter& parameter);
// The same for all of them. The host waits once for those on a GPU, unless one is not finite.
void check_finite(const Gradients& gradients);

}  // namespace sotto::nn
