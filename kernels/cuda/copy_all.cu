// Compiles copies of many arrays for GPUs.
#include "kernels/cuda/copy_all.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::copy_all(std::span<const ArrayCopy>, bool);

}  // namespace sotto
