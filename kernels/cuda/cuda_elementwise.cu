// Compiles copies, fills and the elementwise primitives of two or more operands for GPUs.
#include "kernels/cuda/cuda_elementwise.h"

#include <algorithm>

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

int oldest_code() { return std::min({__CUDA_ARCH_LIST__}) / 10; }

cudaError_t find_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, run_each<PackedFill<std::uint32_t>>);
}

template void DeviceBackend<CudaExec>::fill(double, View);
template void DeviceBackend<CudaExec>::copy(View, View);
template void DeviceBackend<CudaExec>::binary(int, View, View, View);
template void DeviceBackend<CudaExec>::binary_grad(int, int, View, View, View, View);
template void DeviceBackend<CudaExec>::where(View, View, View, View);
template void DeviceBackend<CudaExec>::axpby(double, View, double, View);

}  // namespace sotto
