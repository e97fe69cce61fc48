// Compiles noise and updates for GPUs.
#include "kernels/cuda/noisy_update.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::rounded_gaussian(const RoundedGaussian&, const ChaChaStream&,
                                                        std::span<const std::int64_t>, View);
template void DeviceBackend<CudaExec>::update(std::span<const UpdateArray>, View);

}  // namespace sotto
