// The backend of one GPU: our kernels, and cuBLASLt for products.
#pragma once

#include <memory>

#include "sotto/kernels/backend.h"
#include "sotto/kernels/cuda/device_state.h"

namespace sotto {

// `state` must outlive the backend. Products of f32 round their factors to 11 bits (tf32) where the
// environment variable SOTTO_TF32 is 1; those behind norms never do.
std::unique_ptr<Backend> make_cuda_backend(DeviceState& state);

}  // namespace sotto
