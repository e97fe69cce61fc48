// Compiles LSTM layers for GPUs.
#include "kernels/cuda/cuda_lstm.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::lstm(const LstmLayer&);
template void DeviceBackend<CudaExec>::lstm_grad(const LstmLayer&, View, View, View, View, View);

}  // namespace sotto
