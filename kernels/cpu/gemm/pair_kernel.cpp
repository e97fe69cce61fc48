#include "kernels/cpu/gemm/pair_kernel.h"

#include "core/threads/simd_dispatch.h"
#include "kernels/host_device/gemm_blocking.h"

namespace sotto {
namespace {

const PairKernel* in_place_of_processors = nullptr;

}  // namespace

void use_pair_kernel(const PairKernel* kernel) { in_place_of_processors = kernel; }

}  // namespace sotto

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace sotto {
namespace {

constexpr std::int64_t pair_bytes = 4;

// The layout that `ldtilecfg` reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfiguration tiles_in_full;
constexpr std::int64_t tile_rows = 16, tile_pairs = 16, tile_bytes = 64;

[[gnu::target("amx-tile")]] void begin_tiles() { _tile_loadconfig(&tiles_in_full); }
[[gnu::target("amx-tile")]] void end_tiles() { _tile_release(); }

// Tiles 0 to 3 are sums, of which the second row and column are used if `lower` and `right`; 4 and
// 5 are rows of a, 6 and 7 columns of the panel.
template <bool lower, bool right>
[[gnu::target("amx-tile,amx-bf16")]] void multiply_tiles(std::int64_t pairs, const TermRows& a,
                                                         const PairPanel& panel,
                                                         const SumRows& sums, bool add) {
  const std::int64_t pitch = sums.stride * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t step = panel.width * pair_bytes;
  float* const below = sums.data + tile_rows * sums.stride;
  // The instructions are opaque to the compiler, which must not move stores across them.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (add) {
    _tile_loadd(0, sums.data, pitch);
    if constexpr (right) _tile_loadd(1, sums.data + panel_unit, pitch);
    if constexpr (lower) _tile_loadd(2, below, pitch);
    if constexpr (lower && right) _tile_loadd(3, below + panel_unit, pitch);
  } else {
    _tile_zero(0);
    if constexpr (right) _tile_zero(1);
    if constexpr (lower) _tile_zero(2);
    if constexpr (lower && right) _tile_zero(3);
  }
  const char *rows = a.data, *columns = panel.data;
  for (std::int64_t p = 0; p < pairs; p += tile_pairs) {
    _tile_loadd(4, rows, a.stride);
    _tile_loadd(6, columns, step);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (right) {
      _tile_loadd(7, columns + tile_bytes, step);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (lower) {
      _tile_loadd(5, rows + tile_rows * a.stride, a.stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (lower && right) _tile_dpbf16ps(3, 5, 7);
    rows += tile_bytes;
    columns += tile_pairs * step;
  }
  _tile_stored(0, sums.data, pitch);
  if constexpr (right) _tile_stored(1, sums.data + panel_unit, pitch);
  if constexpr (lower) _tile_stored(2, below, pitch);
  if constexpr (lower && right) _tile_stored(3, below + panel_unit, pitch);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void multiply_by_tiles(std::int64_t rows, std::int64_t pairs, const TermRows& a,
                       const PairPanel& panel, const SumRows& sums, bool add) {
  const bool right = panel.width > panel_unit;
  if (rows > tile_rows) {
    if (right) return multiply_tiles<true, true>(pairs, a, panel, sums, add);
    return multiply_tiles<true, false>(pairs, a, panel, sums, add);
  }
  if (right) return multiply_tiles<false, true>(pairs, a, panel, sums, add);
  multiply_tiles<false, false>(pairs, a, panel, sums, add);
}

// Rows x Vectors of sums over one chain of terms, which stay in registers.
template <int Rows, int Vectors>
[[gnu::target("avx512f,avx512bf16")]] void dot_rows(std::int64_t pairs, const TermRows& a,
                                                    const char* panel, const SumRows& to,
                                                    bool add) {
  __m512 sums[Rows][Vectors] = {};
  const char* row[Rows];
  for (int i = 0; i < Rows; ++i) row[i] = a.data + i * a.stride;
  for (std::int64_t p = 0; p < pairs; ++p) {
    __m512bh y[Vectors];
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v)
      y[v] = (__m512bh)_mm512_loadu_si512(panel + v * panel_unit * pair_bytes);
    panel += Vectors * panel_unit * pair_bytes;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      int pair;
      std::memcpy(&pair, row[i] + p * pair_bytes, sizeof(pair));
      const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 3
      for (int v = 0; v < Vectors; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], x, y[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v) {
      float* const at = to.data + i * to.stride + v * panel_unit;
      _mm512_storeu_ps(at, add ? _mm512_add_ps(_mm512_loadu_ps(at), sums[i][v]) : sums[i][v]);
    }
  }
}

// As many rows at a time as registers hold, then fewer.
template <int Vectors, int Rows = 8>
void dot_all_rows(std::int64_t rows, std::int64_t pairs, TermRows a, const char* panel, SumRows to,
                  bool add) {
  for (; rows >= Rows; rows -= Rows) {
    dot_rows<Rows, Vectors>(pairs, a, panel, to, add);
    a.data += Rows * a.stride;
    to.data += Rows * to.stride;
  }
  if constexpr (Rows > 1) dot_all_rows<Vectors, Rows / 2>(rows, pairs, a, panel, to, add);
}

void multiply_by_dots(std::int64_t rows, std::int64_t pairs, const TermRows& a,
                      const PairPanel& panel, const SumRows& sums, bool add) {
  constexpr std::int64_t chain = pair_chain / 2;
  for (std::int64_t p = 0; p < pairs; p += chain) {
    const TermRows x{a.data + p * pair_bytes, a.stride};
    const char* const y = panel.data + p * panel.width * pair_bytes;
    const std::int64_t some = std::min(chain, pairs - p);
    switch (panel.width / panel_unit) {
      case 1: dot_all_rows<1>(rows, some, x, y, sums, add || p > 0); break;
      case 2: dot_all_rows<2>(rows, some, x, y, sums, add || p > 0); break;
      default: dot_all_rows<3>(rows, some, x, y, sums, add || p > 0);
    }
  }
}

constexpr PairKernel tile_kernel{.rows = 2 * tile_rows,
                                 .columns = 2 * panel_unit,
                                 .unit = tile_rows,
                                 .pairs = tile_pairs,
                                 .chain = 2 * tile_pairs,
                                 .multiply = multiply_by_tiles,
                                 .begin = begin_tiles,
                                 .end = end_tiles};
constexpr PairKernel dot_kernel{.rows = 48,
                                .columns = 3 * panel_unit,
                                .unit = 1,
                                .pairs = 1,
                                .chain = pair_chain,
                                .multiply = multiply_by_dots,
                                .begin = [] {},
                                .end = [] {}};

}  // namespace

const PairKernel* pair_kernel() {
  if (in_place_of_processors) return in_place_of_processors;
  if (has_amx()) return &tile_kernel;
  return has_avx512_bf16() ? &dot_kernel : nullptr;
}

}  // namespace sotto

#else

namespace sotto {

const PairKernel* pair_kernel() { return in_place_of_processors; }

}  // namespace sotto

#endif
