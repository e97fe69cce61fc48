// Compiles cross entropy for GPUs.
#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::cross_entropy(const ClassTargets&, View, View, View);
template void DeviceBackend<CudaExec>::cross_entropy_grad(const ClassTargets&, View, View, View,
                                                          View);

}  // namespace sotto
