// Checks that tensors are finite: gradients before an update, weights before a private step.
#pragma once

#include "autograd/parameter.h"

namespace sotto::nn {

// Returns whether all tensors are free of NaN and infinity. All lie on one device; the host
// synchronizes with it once.
bool all_finite(const std::vector<Tensor>& all);
// Throws std::invalid_argument, with the parameter's shape, when a gradient, or a block of one,
// holds NaN or infinity.
void check_finite(const Tensor& grad, const Parameter& parameter);
// Checks all gradients. The host synchronizes once for those on a GPU, unless one is not finite.
void check_finite(const Gradients& gradients);

}  // namespace sotto::nn
