// Responses: how a lower problem's solution w depends on the parameters u of a problem above. L is
// the lower mean loss on the lower problem's last batch, H its Hessian by w, and a response maps v
// to R v, an approximation of -d2L/du dw H^-1 v. When each is exact: docs/appendix/design-notes.md,
// "Levels".
#pragma once

#include <cstdint>

#include "multilevel/problem.h"

namespace sotto::multilevel {

// Derivatives along a direction d by differences: f(w + e d) for a few e, with e |d| = step. All
// responses with differences compute these passes in f64, whatever type the parameters have.
struct Differences {
  // e |d|. In f64 about the step with the least error, some 1e-10 of the derivative; too short to
  // cross many kinks of a ReLU. DARTS and Betty take 0.01, SAMA 1, in f32.
  double step = 1e-5;
  // central: error step^2; fourth: twice the passes, error step^4
  enum class Order { central, fourth };
  Order order = Order::central;  // of the difference
  // Pass::detach() gives the values at w, so that its derivative is zero. False: those at the moved
  // parameters (DARTS, Betty).
  bool hold_detached = true;
};

// R v = -(dL/du(w + e v) - dL/du(w - e v)) / 2e: one step of gradient descent, H = 1 (Liu et al.
// 2019, DARTS).
Response finite_differences(const Differences& differences = {});
// The exact value of the same where u enters by Problem::weights alone: R v = -(1 / n) sum_i
// <g_i, v> d(weight_i)/du, with inner products of the rows' gradients g_i, which are not formed.
struct RowSlopes {
  // If true, g_i and the losses are those of the last step, whose factors are kept. The result is
  // the derivative of that step's gradient, without an error in its learning rate. It costs about
  // one forward pass instead of three, and the bytes of the factors of the whole batch. Not in f16,
  // nor with a memory limit.
  bool of_step = false;
};
// Returns the response that approximates by these slopes.
Response row_slopes(const RowSlopes& options = {});
// finite_differences() with D v in place of v, where D is the elementwise derivative of the lower
// problem's last Adam step by its gradient (Choe et al. 2023, SAMA). `rule` holds the optimizer's
// options. D is zero at the first step, so let the problem above wait for it.
Response adam_derivative(const nn::AdamRule<false>& rule, const Differences& differences = {});
// H^-1 = rate sum_{k=0..iterations} (1 - rate H)^k (Lorraine et al. 2020).
struct NeumannSeries {
  int iterations = 1;            // products with H
  double rate = 1;               // below 2 / the largest eigenvalue of H
  Differences differences = {};  // of products with H, and of the mixed derivative
};
// The response with H^-1 by that series.
Response neumann(const NeumannSeries& series = {});
// Steps of conjugate gradients for (M + damping) y = v from y = 0. They end early where the
// residual is one of rounding. Throws std::invalid_argument in a direction without curvature.
struct ConjugateGradients {
  // M: the Hessian H, or the empirical Fisher matrix (1 / n) sum_i g_i g_i' of the rows' gradients
  // (Martens 2020), which is never negative, takes no differences and needs damping above 0.
  enum class Matrix { hessian, empirical_fisher };
  int iterations = 1;               // steps
  double damping = 0;               // added to M's diagonal
  Differences differences = {};     // of products with H, and of the mixed derivative
  Matrix matrix = Matrix::hessian;  // M
};
// The response with H^-1 by those steps.
Response conjugate_gradients(const ConjugateGradients& solver = {});

}  // namespace sotto::multilevel
