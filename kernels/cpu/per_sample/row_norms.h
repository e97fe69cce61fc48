// Squared norms of many rows at once, where a processor has AVX-512.
#pragma once

#include <cstdint>

namespace sotto {

#if defined(__x86_64__)

// y[n] = |row n|^2 for the rows [begin, end) of a, of `width` elements each, for has_avx512() only.
// Squares are added four at a time in float and otherwise in double, which costs at most a relative
// 2^-22; a row whose squares may leave float's range is added in double. The bits of y[n] depend on
// its row alone, and zeros at the row's end change none.
void squared_norms_avx512(const float* a, std::int64_t width, std::int64_t begin, std::int64_t end,
                          double* y);

#endif

}  // namespace sotto
