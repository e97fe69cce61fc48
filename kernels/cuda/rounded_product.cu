// Compiles the sum of rounded products for GPUs.
#include "kernels/cuda/rounded_product.h"

#include "kernels/cuda/runtime/device_block.cuh"
#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template bool DeviceBackend<CudaExec>::add_rounded_products(View, View, View, double, View);

}  // namespace sotto
