// Compiles reductions for GPUs.
#include "sotto/kernels/cuda/reduce.h"

#include "sotto/kernels/cuda/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::reduce(Reduction, View, View);
template void DeviceBackend<CudaExec>::argmax(View, View);

}  // namespace sotto
