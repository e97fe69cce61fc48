// The values of quantised blocks. A part is the smallest piece of a block that is widened by
// itself. Products d q are exact in f32, so that each value is rounded once at most.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/block_matrix.h"
#include "core/half.h"

namespace sotto::blocks {

inline float half_at(const std::uint8_t* from) {
  f16 x;
  std::memcpy(&x.bits, from, sizeof x.bits);
  return x;
}

// `lanes` numbers of a block as bytes, integers and in f32: as many as an instruction converts.
template <int lanes, class Byte = std::uint8_t, class Integer = std::int32_t, class Float = float>
struct Lanes {
  using Bytes [[gnu::vector_size(lanes)]] = Byte;
  using Integers [[gnu::vector_size(4 * lanes)]] = Integer;
  using Floats [[gnu::vector_size(4 * lanes)]] = Float;

  static Bytes bytes_at(const std::uint8_t* from) {
    Bytes x;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  static Floats floats(const Bytes& x) {
    return __builtin_convertvector(__builtin_convertvector(x, Integers), Floats);
  }
  static void put(const Floats& x, float* to) { std::memcpy(to, &x, sizeof x); }
};

struct Q8_0 {
  static constexpr int part_values = 32;
  template <class L, int lanes>
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block);
    for (int j = 0; j < part_values; j += lanes)
      L::put(d * (L::floats(L::bytes_at(block + 2 + j) ^ 128) - 128), to + j);
  }
};

struct Q4_0 {
  static constexpr int part_values = 32;
  template <class L, int lanes>
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block);
    for (int j = 0; j < 16; j += lanes) {
      const auto q = L::bytes_at(block + 2 + j);
      L::put(d * (L::floats(q & 15) - 8), to + j);
      L::put(d * (L::floats(q >> 4) - 8), to + 16 + j);
    }
  }
};

struct Q4_1 {
  static constexpr int part_values = 32;
  template <class L, int lanes>
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block), m = half_at(block + 2);
    for (int j = 0; j < 16; j += lanes) {
      const auto q = L::bytes_at(block + 4 + j);
      L::put(d * L::floats(q & 15) + m, to + j);
      L::put(d * L::floats(q >> 4) + m, to + 16 + j);
    }
  }
};

// Part k has the scales 2 k and 2 k + 1, for the low and the high halves of 32 bytes. Of 12 bytes
// for 8 scales s and 8 factors u, bytes 0 .. 3 hold the low 6 bits of s_0 .. s_3, and 4 .. 7 those
// of u_0 .. u_3; bytes 8 .. 11 the low 4 bits of s_4 .. s_7 and u_4 .. u_7, whose upper 2 bits are
// the upper ones of bytes 0 .. 7.
struct Q4_K {
  static constexpr int part_values = 64;
  template <class L, int lanes>
  static void widen(const std::uint8_t* block, int part, float* to) {
    const std::uint8_t* const packed = block + 4;
    const float d = half_at(block), m = half_at(block + 2);
    for (int high = 0; high < 2; ++high) {
      const int k = 2 * part + high, low = k & 3;
      const int s = k < 4 ? packed[low] & 63 : (packed[8 + low] & 15) | (packed[low] >> 6) << 4;
      const int u =
          k < 4 ? packed[4 + low] & 63 : packed[8 + low] >> 4 | (packed[4 + low] >> 6) << 4;
      const float scale = d * static_cast<float>(s), less = m * static_cast<float>(u);
      for (int j = 0; j < 32; j += lanes) {
        const auto q = L::bytes_at(block + 16 + 32 * part + j);
        L::put(scale * L::floats(high ? q >> 4 : q & 15) - less, to + 32 * high + j);
      }
    }
  }
};

// A part has 64 bytes of low bits, 32 of high ones and 8 scales: value j of 128 has the low or high
// half of byte j mod 64, and the bits 2 (j / 32) of byte j mod 32.
struct Q6_K {
  static constexpr int part_values = 128;
  template <class L, int lanes>
  static void widen(const std::uint8_t* block, int part, float* to) {
    const std::uint8_t *const low = block + 64 * part, *const high = block + 128 + 32 * part,
                              *const scales = block + 192 + 8 * part;
    const float d = half_at(block + 208);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {  // unrolled, so that shifts are by constants
      const float scale = d * static_cast<float>(static_cast<std::int8_t>(scales[k]));
      const int shift = k / 2 * 2, half = k < 4 ? 0 : 4;
      for (int j = 16 * k; j < 16 * k + 16; j += lanes) {
        const auto upper = L::bytes_at(high + j % 32) >> shift & 3,
                   lower = L::bytes_at(low + j % 64) >> half & 15;
        L::put(scale * (L::floats(lower | upper << 4) - 32), to + j);
      }
    }
  }
};

// Calls f(std::type_identity<Format>{}).
template <class F>
decltype(auto) dispatch_format(BlockFormat format, F&& f) {
  switch (format) {
    case BlockFormat::q4_0: return f(std::type_identity<Q4_0>{});
    case BlockFormat::q4_1: return f(std::type_identity<Q4_1>{});
    case BlockFormat::q4_k: return f(std::type_identity<Q4_K>{});
    case BlockFormat::q6_k: return f(std::type_identity<Q6_K>{});
    default: return f(std::type_identity<Q8_0>{});
  }
}

}  // namespace sotto::blocks
