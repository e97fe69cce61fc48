// Conversion of layers that cannot be trained privately into ones that can.
#pragma once

#include "nn/layers/norm_layers.h"

namespace sotto::nn {

// Replaces a batch norm, which mixes samples, by a group norm with its scale and shift, so that the
// model can be trained privately. The running statistics are dropped, so train some more. weight
// and bias [c].
GroupNorm group_norm_for_batch_norm(const Tensor& weight, const Tensor& bias, std::int64_t groups);

}  // namespace sotto::nn
