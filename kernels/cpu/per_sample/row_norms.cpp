#include "kernels/cpu/per_sample/row_norms.h"

#if defined(__x86_64__)

#include <algorithm>

#include <immintrin.h>

#include "kernels/cpu/per_sample/dot.h"

namespace sotto {

namespace {

constexpr std::int64_t vector_floats = 16, block_vectors = 4;
constexpr std::int64_t block_floats = block_vectors * vector_floats;
// Rows whose vectors of sums are reduced together.
constexpr std::int64_t rows_together = 8;

// The division of a row: elements in whole blocks, and masks for those of one partial block.
struct RowDivision {
  std::int64_t whole;
  __mmask16 rest[block_vectors];

  explicit RowDivision(std::int64_t width) : whole(width / block_floats * block_floats) {
    for (std::int64_t v = 0; v < block_vectors; ++v) {
      const std::int64_t left =
          std::clamp<std::int64_t>(width - whole - v * vector_floats, 0, vector_floats);
      rest[v] = static_cast<__mmask16>((1U << left) - 1);
    }
  }
};

typedef double Eight __attribute__((vector_size(64)));

// x in double. (The masked instruction avoids false warnings about uninitialised reads.)
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight wide(__m256 x) {
  return _mm512_maskz_cvtps_pd(0xff, x);
}

// sum + the squares of a block.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight plus_squares(Eight sum, __m512 x,
                                                                       __m512 y, __m512 z,
                                                                       __m512 w) {
  const __m512 squares = (x * x + y * y) + (z * z + w * w);
  return sum + (wide(__builtin_shufflevector(squares, squares, 0, 1, 2, 3, 4, 5, 6, 7)) +
                wide(__builtin_shufflevector(squares, squares, 8, 9, 10, 11, 12, 13, 14, 15)));
}

// 16 elements in f32, those outside of the mask zeros.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline __m512 some_floats(__mmask16 mask,
                                                                       const float* a) {
  return _mm512_maskz_loadu_ps(mask, a);
}
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline __m512 some_floats(__mmask16 mask,
                                                                       const bf16* a) {
  using Bits [[gnu::vector_size(32)]] = std::uint16_t;
  using WideBits [[gnu::vector_size(64)]] = std::uint32_t;
  const auto bits = reinterpret_cast<Bits>(_mm256_maskz_loadu_epi16(mask, a));
  return reinterpret_cast<__m512>(__builtin_convertvector(bits, WideBits) << 16);
}

// Eight partial sums of a row's squares.
template <class T>
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight sums_of_row(const T* a,
                                                                      const RowDivision& blocks) {
  constexpr std::int64_t next = vector_floats;
  constexpr __mmask16 all = 0xffff;
  Eight sums{};
  for (const T* const end = a + blocks.whole; a != end; a += block_floats) {
    sums = plus_squares(sums, some_floats(all, a), some_floats(all, a + next),
                        some_floats(all, a + 2 * next), some_floats(all, a + 3 * next));
  }
  const __mmask16* const some = blocks.rest;
  if (some[0] == 0) return sums;
  return plus_squares(sums, some_floats(some[0], a), some_floats(some[1], a + next),
                      some_floats(some[2], a + 2 * next), some_floats(some[3], a + 3 * next));
}

// Adds neighbouring lanes of two vectors; the sums of x and y alternate.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight sums_of_pairs(Eight x, Eight y) {
  return __builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14) +
         __builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
}

// Adds neighbouring pairs of lanes of two vectors.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight sums_of_quarters(Eight x, Eight y) {
  return __builtin_shufflevector(x, y, 0, 1, 4, 5, 8, 9, 12, 13) +
         __builtin_shufflevector(x, y, 2, 3, 6, 7, 10, 11, 14, 15);
}

// The sum of each of eight vectors.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline Eight totals(const Eight (&s)[rows_together]) {
  return sums_of_quarters(sums_of_quarters(sums_of_pairs(s[0], s[1]), sums_of_pairs(s[2], s[3])),
                          sums_of_quarters(sums_of_pairs(s[4], s[5]), sums_of_pairs(s[6], s[7])));
}

// The sum of one vector, in the order of totals().
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline double total(Eight s) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// True if squares_hold() for all lanes.
[[gnu::target("avx512f,avx512vl,avx512bw")]] inline bool all_hold(Eight y) {
  const __mmask8 large = _mm512_cmp_pd_mask(y, _mm512_set1_pd(min_held), _CMP_GE_OQ);
  return _mm512_mask_cmp_pd_mask(large, y, _mm512_set1_pd(max_held), _CMP_LE_OQ) == 0xff;
}

// Recomputes y in f64 if squares left float's range.
template <class T>
void correct(const T* row, std::int64_t width, double& y) {
  if (squares_hold(y)) return;
  y = sum_terms(
      width, [row](std::int64_t i) { return double{acc_t<T>(row[i])} * double{acc_t<T>(row[i])}; });
}

template <class T>
[[gnu::target("avx512f,avx512vl,avx512bw")]] void write_squared_norms(const T* a,
                                                                      std::int64_t width,
                                                                      std::int64_t begin,
                                                                      std::int64_t end, double* y) {
  const RowDivision blocks(width);
  std::int64_t n = begin;
  for (; n + rows_together <= end; n += rows_together) {
    Eight sums[rows_together];
    for (std::int64_t r = 0; r < rows_together; ++r)
      sums[r] = sums_of_row(a + (n + r) * width, blocks);
    const Eight all = totals(sums);
    _mm512_storeu_pd(y + n, all);
    if (all_hold(all)) continue;
    for (std::int64_t r = n; r < n + rows_together; ++r) correct(a + r * width, width, y[r]);
  }
  for (; n < end; ++n) {
    y[n] = total(sums_of_row(a + n * width, blocks));
    correct(a + n * width, width, y[n]);
  }
}

}  // namespace

void squared_norms_avx512(const float* a, std::int64_t width, std::int64_t begin, std::int64_t end,
                          double* y) {
  write_squared_norms(a, width, begin, end, y);
}
void squared_norms_avx512(const bf16* a, std::int64_t width, std::int64_t begin, std::int64_t end,
                          double* y) {
  write_squared_norms(a, width, begin, end, y);
}

}  // namespace sotto

#endif
