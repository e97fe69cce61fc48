// Compiles layers of long short-term memory for GPUs.
#include "sotto/kernels/cuda/lstm.h"

#include "sotto/kernels/cuda/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::lstm(const LstmLayer&);
template void DeviceBackend<CudaExec>::lstm_grad(const LstmLayer&, View, View, View, View, View);

}  // namespace sotto
