#include "nn/convert.h"

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

GroupNorm group_norm_for_batch_norm(const Tensor& weight, const Tensor& bias, std::int64_t groups) {
  check(weight.rank() == 1 && weight.shape() == bias.shape(),
        "group_norm_for_batch_norm: weight {} and bias {}", weight.shape(), bias.shape());
  GroupNorm layer(groups, weight.size(0));
  layer.weight->value = clone(weight);
  layer.bias->value = clone(bias);
  return layer;
}

}  // namespace sotto::nn
