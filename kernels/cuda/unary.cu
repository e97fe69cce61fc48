// Compiles the elementwise primitives of one operand for GPUs.
#include "kernels/cuda/unary.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::unary(int, Constants, View, View);
template void DeviceBackend<CudaExec>::unary_grad(int, Constants, View, View, View, View);

}  // namespace sotto
