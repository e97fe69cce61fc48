// Squared norms of many rows at once, in AVX-512.
#pragma once

#include <cstdint>

#include "core/half.h"

namespace sotto {

#if defined(__x86_64__)

// y[n] = |row n|^2 for the rows [begin, end) of a, of `width` elements each; requires has_avx512(),
// of f32, or has_avx512_bf16(), of bf16.
// Squares are added four at a time in float and then in double, a relative error of at most 2^-22;
// a row whose squares may leave float's range is recomputed in f64. The bits of y[n] depend only on
// its row, and zeros at the row's end change none.
void squared_norms_avx512(const float* a, std::int64_t width, std::int64_t begin, std::int64_t end,
                          double* y);
void squared_norms_avx512(const bf16* a, std::int64_t width, std::int64_t begin, std::int64_t end,
                          double* y);

#endif

}  // namespace sotto
