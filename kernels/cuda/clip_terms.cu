// Compiles the bounds, factors and checks of clipping for GPUs.
#include "kernels/cuda/clip_terms.h"

#include "kernels/cuda/runtime/execution.cuh"

namespace sotto {

template void DeviceBackend<CudaExec>::clip_factors(const ClipRule&, double, View, View, View);
template void DeviceBackend<CudaExec>::term_bounds(std::span<const BoundedTerms>);
template void DeviceBackend<CudaExec>::mark_cancelled(const CancelledSquares&, View);
template void DeviceBackend<CudaExec>::mark_nonfinite(std::span<const View>, View);
template void DeviceBackend<CudaExec>::zero_all(std::span<const View>);
template void DeviceBackend<CudaExec>::squared_row_norms(std::span<const RowNorms>);
template void DeviceBackend<CudaExec>::add_all_rounded(std::span<const RoundedRows>, View);

}  // namespace sotto
