// How 16-bit numbers are packed into the pairs of terms that pair_kernel.h multiplies. For loops
// under in_vectors().
#pragma once

#include <cstdint>

#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/microkernel.h"

namespace sotto::pairs {

using Pair = std::uint32_t;
using Square = tiles::Registers<float, 64>;  // the shuffles of tiles::transpose keep all bits
using Vector = Square::Vector;
inline constexpr std::int64_t lanes = Square::lanes;

// Calls f() in the vectors of processors that multiply pairs, else as simd_dispatch().
template <class F>
void in_vectors(const F& f) {
  if (has_avx512_bf16()) {
    in_avx512(f);
  } else {
    simd_dispatch(f);
  }
}

inline std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

inline Pair pair(std::uint16_t first, std::uint16_t second) { return first | Pair{second} << 16; }

// The pairs of 16 adjacent columns, from their first terms and their second ones.
inline Vector interleaved(const std::uint16_t* first, const std::uint16_t* second) {
  using Terms [[gnu::vector_size(32)]] = std::uint16_t;
  using Pairs [[gnu::vector_size(64)]] = Pair;
  const Pairs low = __builtin_convertvector(tiles::load<Terms>(first), Pairs),
              high = __builtin_convertvector(tiles::load<Terms>(second), Pairs),
              both = low | (high << 16);
  return tiles::load<Vector>(&both);
}

// Stores 16 x 16 pairs, of which vector(k) returns the k-th row, transposed: the k-th column at
// to + k pitch.
template <class F>
void store_transposed(const F& vector, Pair* to, std::int64_t pitch) {
  Vector x[lanes];
#pragma GCC unroll 16
  for (int k = 0; k < lanes; ++k) x[k] = vector(k);
  tiles::transpose<Square>(x);
#pragma GCC unroll 16
  for (int k = 0; k < lanes; ++k) tiles::store(x[k], to + k * pitch);
}

}  // namespace sotto::pairs
