// Compiles copies, fills and the elementwise primitives of two or more operands for GPUs.
#include "kernels/cuda/cuda_elementwise.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

bool has_code_for_device() {
  cudaFuncAttributes attributes;
  const bool there =
      cudaFuncGetAttributes(&attributes, run_each<PackedFill<std::uint32_t>>) == cudaSuccess;
  cudaGetLastError();  // clears the error, which is reported only once
  return there;
}

template void DeviceBackend<CudaExec>::fill(double, View);
template void DeviceBackend<CudaExec>::copy(View, View);
template void DeviceBackend<CudaExec>::binary(int, View, View, View);
template void DeviceBackend<CudaExec>::binary_grad(int, int, View, View, View, View);
template void DeviceBackend<CudaExec>::where(View, View, View, View);
template void DeviceBackend<CudaExec>::axpby(double, View, double, View);

}  // namespace sotto
