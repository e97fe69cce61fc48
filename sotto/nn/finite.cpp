#include "sotto/nn/finite.h"

#include <algorithm>
#include <map>

#include "sotto/kernels/compute.h"

namespace sotto::nn {

namespace {

// x - x is zero unless x is NaN or infinite, and then NaN. The sum of squares, in double, is finite
// where all of x is, and takes one pass; squares of f64 may leave its range.
Tensor faults_of(const Tensor& x) {
  if (x.dtype() == Dtype::f64) return sum(sub(x, x));
  const Tensor row = reshape(x, {1, x.numel()}),
               square = Tensor::empty({1}, Dtype::f64, x.device());
  backend(x.device()).row_dot(row.view(), row.view(), square.view());
  return sum(sub(square, square));
}

// Zero where all of x is finite, otherwise NaN. A part at a time, where x lies so.
Tensor sum_of_faults(const Tensor& x) {
  constexpr std::int64_t on_cpu = 1 << 18, on_gpu = 1 << 24;
  const auto flat = x.permute(x.memory_order()).view_as({x.numel()});
  const std::int64_t step = x.device() == cpu ? on_cpu : on_gpu;
  if (!flat || x.numel() <= step) return faults_of(x);
  Tensor total;
  for (std::int64_t at = 0; at < x.numel(); at += step) {
    const Tensor part = flat->slice(0, at, std::min(x.numel(), at + step));
    const Tensor faults = faults_of(part);
    total = total.defined() ? add(total, faults) : faults;
  }
  return total;
}

}  // namespace

void check_finite(const Tensor& grad, const Parameter& parameter) {
  check(sum_of_faults(grad).item() == 0, "step: the gradient of a parameter {} is not finite",
        parameter.value.shape());
}

void check_finite(const Gradients& gradients) {
  std::map<int, Tensor> total;
  for (const auto& [parameter, grad] : gradients) {
    if (grad.device() == cpu) {
      check_finite(grad, *parameter);
    } else {
      Tensor& sums = total[grad.device().index];
      const Tensor faults = to_dtype(sum_of_faults(grad), Dtype::f32);
      sums = sums.defined() ? add(sums, faults) : faults;
    }
  }
  for (const auto& [index, sums] : total) {
    if (sums.item() == 0) continue;
    for (const auto& [parameter, grad] : gradients) check_finite(grad, *parameter);
  }
}

}  // namespace sotto::nn
