// Products of two bf16 matrices by the processor's instructions for pairs of terms
// (pair_kernel.h). Factors are packed in blocks, and sums stay in f32 until they are complete.
#pragma once

#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/gemm/pair_kernel.h"

namespace sotto {

// c = a b, or c += a b if `add`, for bf16 factors and a c of any type but f64. As in product(), the
// bits of an element depend only on its row of a and its column of b.
void pair_product(const PairKernel& kernel, const Matrix& a, const Matrix& b, bool add,
                  const Matrix& c);

}  // namespace sotto
