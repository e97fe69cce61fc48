#include "sotto/nn/finite.h"

#include <algorithm>
#include <map>

#include "sotto/kernels/compute.h"

namespace sotto::nn {

namespace {

// Zero where all of x is finite: x - x is, unless x is NaN or infinite, and then NaN. A part at a
// time, where x lies so.
Tensor sum_of_faults(const Tensor& x) {
  constexpr std::int64_t on_cpu = 1 << 18, on_gpu = 1 << 24;
  const auto flat = x.permute(x.memory_order()).view_as({x.numel()});
  const std::int64_t step = x.device() == cpu ? on_cpu : on_gpu;
  if (!flat || x.numel() <= step) return sum(sub(x, x));
  Tensor total;
  for (std::int64_t at = 0; at < x.numel(); at += step) {
    const Tensor part = flat->slice(0, at, std::min(x.numel(), at + step));
    const Tensor faults = sum(sub(part, part));
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
