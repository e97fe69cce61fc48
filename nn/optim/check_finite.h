// Gradients that updates refuse, and weights that an engine does.
#pragma once

#include "autograd/parameter.h"

namespace sotto::nn {

// Returns whether no tensor holds NaN or infinity. All are on one device. The host waits once.
bool all_finite(const std::vector<Tensor>& all);
// Throws std::invalid_argument, with the parameter's shape, when a gradient, or a part of one,
// holds NaN or infinity.
void check_finite(const Tensor& grad, const Parameter& parameter);
// The same for all of them. The host waits once for those on a GPU, unless one is not finite.
void check_finite(const Gradients& gradients);

}  // namespace sotto::nn
