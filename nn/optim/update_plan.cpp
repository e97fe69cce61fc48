#include "nn/optim/update_plan.h"

#include <vector>

#include "kernels/backend.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

std::optional<UpdateArray> array_of(const RulePlan& plan, const Update& update) {
  const Tensor& value = update.value;
  const Shape order = value.memory_order();
  if (!value.permute(order).contiguous()) return {};
  UpdateArray array{.rule = plan.rule,
                    .constants = plan.constants,
                    .dtype = value.dtype(),
                    .count = value.numel(),
                    .value = value.view().data,
                    .gradient = update.grad.view().data,
                    .start = plan.start};
  if (!update.grad.permute(order).contiguous()) return {};
  std::size_t k = 0;
  for (Tensor& state : update.buffers) {
    if (!state.defined()) {
      state = empty_like(value);
      array.first = true;
    }
    if (!state.permute(order).contiguous()) return {};
    array.state[k++] = state.view().data;
  }
  return array;
}

void apply(const RulePlan& plan, const Update& update) {
  if (const auto array = array_of(plan, update)) {
    return backend(update.value.device()).update(std::span(&*array, 1), {});
  }
  // Some tensor is not stored in the value's order: update row-major copies.
  const Tensor value = contiguous(update.value), grad = contiguous(update.grad);
  std::vector<Tensor> state;
  for (const Tensor& kept : update.buffers)
    state.push_back(kept.defined() ? contiguous(kept) : Tensor());
  Update copy{.value = value, .grad = grad, .buffers = state};
  const UpdateArray array = array_of(plan, copy).value();
  backend(value.device()).update(std::span(&array, 1), {});
  if (!value.shares_storage(update.value)) copy_into(value, update.value);
  for (std::size_t k = 0; k < state.size(); ++k) {
    Tensor& kept = update.buffers[k];
    if (!kept.defined()) kept = state[k];
    if (!kept.shares_storage(state[k])) copy_into(state[k], kept);
  }
}

}  // namespace sotto::nn
