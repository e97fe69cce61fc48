#include "dp/numerics/bfgs.h"

#include <cmath>
#include <limits>

#include <Eigen/Core>

namespace sotto {

namespace {

using Vector = Eigen::VectorXd;
using Function = std::function<ValueAndGradient(const std::vector<double>&)>;

struct Iterate {
  Vector x;
  double value = 0;
  Vector gradient;
};

Iterate at(const Function& function, const Vector& x) {
  const ValueAndGradient y = function({x.begin(), x.end()});
  return {x, y.value, Eigen::Map<const Vector>(y.gradient.data(), x.size())};
}

// Bisects for a step with sufficient decrease and a less steep slope (Lewis and Overton 2013,
// algorithm 2.6). Returns `from` itself when there is none.
Iterate along(const Function& function, const Iterate& from, const Vector& direction) {
  constexpr double decrease = 1e-4, curvature = 0.9;  // the usual values (Nocedal and Wright 2006)
  constexpr int max_trials = 60;
  const double slope = from.gradient.dot(direction);
  double low = 0, high = std::numeric_limits<double>::infinity(), step = 1;
  Iterate best = from;
  for (int trial = 0; trial < max_trials; ++trial) {
    Iterate next = at(function, from.x + step * direction);
    const bool lower = std::isfinite(next.value) && next.gradient.allFinite() &&
                       next.value <= from.value + decrease * step * slope;
    if (lower && next.value < best.value) best = next;
    if (lower && next.gradient.dot(direction) >= curvature * slope) return next;
    (lower ? low : high) = step;
    step = std::isinf(high) ? 2 * low : (low + high) / 2;
  }
  return best;
}

}  // namespace

std::vector<double> minimize(const Function& function, std::vector<double> start, double tolerance,
                             int max_steps) {
  Iterate here = at(function, Eigen::Map<const Vector>(start.data(), std::ssize(start)));
  const auto size = here.x.size();
  Eigen::MatrixXd inverse = Eigen::MatrixXd::Identity(size, size);  // of the Hessian
  for (int step = 0; step < max_steps; ++step) {
    if (size == 0 || here.gradient.cwiseAbs().maxCoeff() <= tolerance) break;
    const Iterate next = along(function, here, -inverse * here.gradient);
    const Vector dx = next.x - here.x, dg = next.gradient - here.gradient;
    const double product = dx.dot(dg);
    if (!(next.value < here.value) || !(product > 0)) {
      if (next.value < here.value) here = next;
      break;
    }
    const Vector scaled = inverse * dg;
    inverse += (1 + dg.dot(scaled) / product) / product * dx * dx.transpose() -
               (scaled * dx.transpose() + dx * scaled.transpose()) / product;
    here = next;
  }
  return {here.x.begin(), here.x.end()};
}

}  // namespace sotto
