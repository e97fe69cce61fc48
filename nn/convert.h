// Conversion of layers that cannot be trained privately into ones that can.
#pragma once

#include "nn/layers/norm_layers.h"

namespace sotto::nn {

// A group norm that replaces a batch norm of as many channels and takes over its scale and shift,
// so that a model that mixes samples can be trained privately. The running statistics are not
// transferred: some training has to follow. weight and bias [c].
GroupNorm group_norm_for_batch_norm(const Tensor& weight, const Tensor& bias, std::int64_t groups);

}  // namespace sotto::nn
