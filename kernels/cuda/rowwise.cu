// Compiles softmax for GPUs.
#include "kernels/cuda/rowwise.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::softmax(View, bool, View);
template void DeviceBackend<CudaExec>::softmax_grad(View, View, bool, View);
template void DeviceBackend<CudaExec>::masked_softmax(const AttentionMask&, View, View);
template void DeviceBackend<CudaExec>::score_weights_grad(const AttentionMask&, View, View, View);

}  // namespace sotto
