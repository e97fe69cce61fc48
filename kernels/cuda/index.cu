// Compiles gather, scatter and random masks for GPUs.
#include "kernels/cuda/index.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::gather(View, View, int, View);
template void DeviceBackend<CudaExec>::scatter_add(View, View, int, View);
template void DeviceBackend<CudaExec>::take_along(View, View, int, View);
template void DeviceBackend<CudaExec>::put_along_add(View, View, int, View);
template void DeviceBackend<CudaExec>::bernoulli(PhiloxKey, View, double, View);

}  // namespace sotto
