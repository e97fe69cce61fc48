#include "nn/optim/check_finite.h"

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// Splits x into pieces that take one reduction each, if x is dense.
std::vector<Tensor> parts_of(const Tensor& x) {
  constexpr std::int64_t on_cpu = 1 << 18, on_gpu = 1 << 24;
  const auto flat = x.permute(x.memory_order()).view_as({x.numel()});
  const std::int64_t step = x.device() == cpu ? on_cpu : on_gpu;
  if (!flat || x.numel() <= step) return {x};
  std::vector<Tensor> parts;
  for (std::int64_t at = 0; at < x.numel(); at += step)
    parts.push_back(flat->slice(0, at, std::min(x.numel(), at + step)));
  return parts;
}

// Writes a number that is finite exactly if all of x is. The sum of squares, in f64, takes one read
// of x; for f64, whose squares may overflow, it is the sum of x - x, which is 0 or NaN.
void write_square(const Tensor& x, const Tensor& square) {
  if (x.dtype() == Dtype::f64) return copy_into(sum(sub(x, x)), square);
  const Tensor row = reshape(x, {1, x.numel()});
  backend(x.device()).row_dot(row.view(), row.view(), square.view());
}

}  // namespace

bool all_finite(const std::vector<Tensor>& all) {
  std::vector<Tensor> parts;
  for (const Tensor& x : all) {
    const auto more = parts_of(x);
    parts.insert(parts.end(), more.begin(), more.end());
  }
  if (parts.empty()) return true;
  const Tensor squares = Tensor::empty({std::ssize(parts)}, Dtype::f64, all[0].device());
  for (std::int64_t k = 0; k < squares.numel(); ++k)
    write_square(parts[static_cast<std::size_t>(k)], squares.slice(0, k, k + 1));
  return sum(sub(squares, squares)).item() == 0;
}

void check_finite(const Tensor& grad, const Parameter& parameter) {
  check(all_finite({grad}), "step: the gradient of a parameter {} is not finite",
        parameter.value.shape());
}

void check_finite(const Gradients& gradients) {
  // One reduction and one synchronization for all gradients of a GPU.
  std::map<int, std::vector<Tensor>> on_gpus;
  for (const auto& [parameter, grad] : gradients) {
    if (grad.device() == cpu) {
      check_finite(grad, *parameter);
    } else {
      on_gpus[grad.device().index].push_back(grad);
    }
  }
  for (const auto& [index, grads] : on_gpus) {
    if (all_finite(grads)) continue;
    for (const auto& [parameter, grad] : gradients) check_finite(grad, *parameter);
  }
}

}  // namespace sotto::nn
