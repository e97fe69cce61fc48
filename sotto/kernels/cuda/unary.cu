// Compiles the elementwise primitives of one operand for GPUs.
#include "sotto/kernels/cuda/unary.h"

#include "sotto/kernels/cuda/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::unary(int, Constants, View, View);
template void DeviceBackend<CudaExec>::unary_grad(int, Constants, View, View, View, View);

}  // namespace sotto
