#include "nn/optim/check_finite.h"

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

bool all_finite(const std::vector<Tensor>& all) {
  if (all.empty()) return true;
  std::vector<Tensor> dense;  // strided tensors are copied
  std::vector<View> views;
  for (const Tensor& x : all) {
    dense.push_back(x.is_dense() ? x : contiguous(x));
    views.push_back(dense.back().view());
  }
  const Tensor marks = Tensor::empty({std::ssize(all)}, Dtype::f64, all[0].device());
  backend(marks.device()).mark_nonfinite(views, marks.view());
  const std::vector<double> marked = marks.to_vector<double>();
  return std::all_of(marked.begin(), marked.end(), [](double mark) { return mark == 0; });
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
