// Compiles fused attention for GPUs.
#include "kernels/cuda/cuda_attention.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template bool DeviceBackend<CudaExec>::attention(const FusedAttention&);
template bool DeviceBackend<CudaExec>::attention_grad(const FusedAttention&,
                                                      const FusedAttentionGrad&);

}  // namespace sotto
