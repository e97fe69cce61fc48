// Matrix products by cuBLASLt.
#pragma once

#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// Whether the library can read a matrix, or a batch of them, as it lies: one of the last two axes
// has stride 1, and lines do not overlap.
bool library_reads(const View& x);

// c = a b + beta c, not empty, for operands that the library reads and a row-major c, as
// Backend::gemm has it. Summed in float, or in double for f64; c may be wider than a and b. `tf32`:
// factors of f32 may be rounded to 11 bits.
void library_product(DeviceState& state, const Call& call, const View& a, const View& b,
                     double beta, const View& c, bool tf32);

// Whether library_affine() takes a product [.., inner] x [inner, ..] of these views: the library's
// biases are for matrices with more than one row, column and term.
bool library_adds(const View& a, const View& bias, const View& c);
// c = a b + bias as Backend::affine has it, in one launch.
void library_affine(DeviceState& state, const Call& call, const View& a, const View& b,
                    const View& bias, const View& c, bool tf32);

}  // namespace sotto
