// A build without cuDNN: convolutions go by patches, attention by products.
#include "sotto/kernels/cuda/cudnn_attention.h"
#include "sotto/kernels/cuda/cudnn_conv.h"

namespace sotto {

const ConvPlan* conv_plan(DeviceState&, const ConvProblem&) { return nullptr; }
const AttentionPlan* attention_plan(DeviceState&, const AttentionProblem&) { return nullptr; }

}  // namespace sotto
