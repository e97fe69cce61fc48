// Minimization of a smooth function of a few variables.
#pragma once

#include <functional>
#include <vector>

namespace sotto {

struct ValueAndGradient {
  double value = 0;
  std::vector<double> gradient;
};

// A local minimum by the BFGS method (Broyden, Fletcher, Goldfarb and Shanno) from `start`, with
// steps that meet the weak Wolfe conditions; a step to a value that is not finite is not made. Ends
// when no component of the gradient is above `tolerance`, no step makes progress, or after
// `max_steps`. The result's value is never above that at the start, which must be finite.
std::vector<double> minimize(
    const std::function<ValueAndGradient(const std::vector<double>&)>& function,
    std::vector<double> start, double tolerance = 1e-9, int max_steps = 500);

}  // namespace sotto
