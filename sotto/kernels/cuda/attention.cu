// Compiles attention by a library for GPUs.
#include "sotto/kernels/cuda/attention.h"

#include "sotto/kernels/cuda/execution.cuh"

namespace sotto {

template bool DeviceBackend<CudaExec>::attention(const FusedAttention&);
template bool DeviceBackend<CudaExec>::attention_grad(const FusedAttention&,
                                                      const FusedAttentionGrad&);

}  // namespace sotto
