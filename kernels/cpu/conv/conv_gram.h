// Norms of a convolution's per-sample weight gradients by Gram products of pixels.
#pragma once

#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// The squared norm of one sample's weight gradient, from the materialized gradient in f64.
double exact_weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample);

}  // namespace sotto
