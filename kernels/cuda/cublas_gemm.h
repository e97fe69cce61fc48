// Matrix products by cuBLASLt.
#pragma once

#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// True if the library can read a matrix, or a batch of them, in place: one of the last two axes has
// stride 1, and lines do not overlap.
bool library_reads(const View& x);

// c = a b + beta c (Backend::gemm), not empty, for operands with library_reads() and a row-major c.
// Sums are in float, or in double for f64; c may be wider than a and b. With `tf32`, f32 factors
// may be rounded to 11 bits.
void library_product(DeviceState& state, const Call& call, const View& a, const View& b,
                     double beta, const View& c, bool tf32);

// True if library_affine() supports a product of these views: the library adds biases only to
// matrices with more than one row, column and term.
bool library_adds(const View& a, const View& bias, const View& c);
// c = a b + bias (Backend::affine), in one launch.
void library_affine(DeviceState& state, const Call& call, const View& a, const View& b,
                    const View& bias, const View& c, bool tf32);

}  // namespace sotto
