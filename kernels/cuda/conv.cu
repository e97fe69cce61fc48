// Compiles im2col convolutions for GPUs.
#include "kernels/cuda/conv.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::conv(View, View, View, const Window&, View);
template void DeviceBackend<CudaExec>::conv_data(View, View, const Window&, View);
template void DeviceBackend<CudaExec>::conv_weight(View, View, const Window&, double, View);
template void DeviceBackend<CudaExec>::conv_weight_rows(View, View, const Window&, View, View);
template void DeviceBackend<CudaExec>::conv_weight_norms(View, View, const Window&, View);
template void DeviceBackend<CudaExec>::unfold(View, const Window&, View);

}  // namespace sotto
