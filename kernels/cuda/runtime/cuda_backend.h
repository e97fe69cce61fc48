// The backend of one GPU: sotto's kernels, and cuBLASLt for products.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// `state` must outlive the backend. Products of f32 round their factors to 11 bits if tf32_used()
// (tf32.h); those inside of norms never do.
std::unique_ptr<Backend> make_cuda_backend(DeviceState& state);

}  // namespace sotto
