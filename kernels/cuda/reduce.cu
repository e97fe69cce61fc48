// Compiles reductions for GPUs.
#include "kernels/cuda/reduce.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::reduce(Reduction, View, View);
template void DeviceBackend<CudaExec>::argmax(View, View);

}  // namespace sotto
