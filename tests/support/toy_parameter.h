// A few numbers under an update rule: the starting point and steps of the tests of optimizers.
#pragma once

#include <array>
#include <cmath>

#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"

namespace sotto {

inline constexpr int toy_steps = 12;
inline constexpr int width = 5;
// Tolerances of the relative error after a dozen steps, per dtype.
inline constexpr double f32_tolerance = 2e-5;
inline constexpr double f64_tolerance = 1e-12;

// One number with the states of a formula, all zero at first.
struct Scalar {
  double p;
  std::array<double, 3> state{};
};

inline double start(int i) { return normal(PhiloxKey{3, 1}, static_cast<std::uint64_t>(i)); }
inline double slope(int t, int i) {
  return normal(PhiloxKey{3, 2}, static_cast<std::uint64_t>(t * width + i));
}

inline Tensor starts(Dtype dtype) {
  std::vector<double> values;
  for (int i = 0; i < width; ++i) values.push_back(start(i));
  return to_dtype(Tensor::from(values, {width}), dtype);
}

inline Tensor grads(int t, Dtype dtype) {
  std::vector<double> values;
  for (int i = 0; i < width; ++i) values.push_back(slope(t, i));
  return to_dtype(Tensor::from(values, {width}), dtype);
}

}  // namespace sotto
