// Compiles inner products and sums of per-sample gradients for GPUs.
#include "kernels/cuda/cuda_per_sample.h"

#include "kernels/cuda/runtime/execution.cuh"
#include "kernels/cuda/weighted_rows.h"

namespace sotto {

template void DeviceBackend<CudaExec>::row_dot(View, View, View);
template void DeviceBackend<CudaExec>::gram_dot(View, View, View, View, View);
template void DeviceBackend<CudaExec>::onehot_dot(View, View, View, View, View);
template void DeviceBackend<CudaExec>::weighted_sum(View, View, double, View);
template void DeviceBackend<CudaExec>::add_rounded(View, View, double, View);
template void DeviceBackend<CudaExec>::scale_to_bf16x2(View, View, View);

}  // namespace sotto
