// Compiles pooling for GPUs.
#include "kernels/cuda/pool.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::max_pool(View, const Window&, View, View);
template void DeviceBackend<CudaExec>::max_pool_grad(View, View, const Window&, View);
template void DeviceBackend<CudaExec>::avg_pool(View, const Window&, bool, View);
template void DeviceBackend<CudaExec>::avg_pool_grad(View, const Window&, bool, View);

}  // namespace sotto
