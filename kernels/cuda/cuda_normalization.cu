// Compiles normalisation for GPUs.
#include "kernels/cuda/cuda_normalization.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::normalize(const Normalization&, View, View, View);
template void DeviceBackend<CudaExec>::normalize_grad(const Normalization&, View, View, View,
                                                      const NormalizationGrads&);

}  // namespace sotto
