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

// to[j] = value(q), and to[count + j], with the low and the high halves of the bytes.
template <int count, class F>
void widen_halves(const std::uint8_t* q, float* to, const F& value) {
  for (int j = 0; j < count; ++j) to[j] = value(q[j] & 15);
  for (int j = 0; j < count; ++j) to[count + j] = value(q[j] >> 4);
}

struct Q8_0 {
  static constexpr int part_values = 32;
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block);
    for (int j = 0; j < part_values; ++j)
      to[j] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + j]));
  }
};

struct Q4_0 {
  static constexpr int part_values = 32;
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block);
    widen_halves<16>(block + 2, to, [d](int q) { return d * static_cast<float>(q - 8); });
  }
};

struct Q4_1 {
  static constexpr int part_values = 32;
  static void widen(const std::uint8_t* block, int, float* to) {
    const float d = half_at(block), m = half_at(block + 2);
    widen_halves<16>(block + 4, to, [d, m](int q) { return d * static_cast<float>(q) + m; });
  }
};

// Part k has the scales 2 k and 2 k + 1, for the low and the high halves of 32 bytes. Of 12 bytes
// for 8 scales s and 8 factors u, bytes 0 .. 3 hold the low 6 bits of s_0 .. s_3, and 4 .. 7 those
// of u_0 .. u_3; bytes 8 .. 11 the low 4 bits of s_4 .. s_7 and u_4 .. u_7, whose upper 2 bits are
// the upper ones of bytes 0 .. 7.
struct Q4_K {
  static constexpr int part_values = 64;
  static void widen(const std::uint8_t* block, int part, float* to) {
    const std::uint8_t* const packed = block + 4;
    const float d = half_at(block), m = half_at(block + 2);
    for (int high = 0; high < 2; ++high) {
      const int k = 2 * part + high, low = k & 3;
      const int s = k < 4 ? packed[low] & 63 : (packed[8 + low] & 15) | (packed[low] >> 6) << 4;
      const int u =
          k < 4 ? packed[4 + low] & 63 : packed[8 + low] >> 4 | (packed[4 + low] >> 6) << 4;
      const float scale = d * static_cast<float>(s), less = m * static_cast<float>(u);
      const std::uint8_t* const q = block + 16 + 32 * part;
      for (int j = 0; j < 32; ++j)
        to[32 * high + j] = scale * static_cast<float>(high ? q[j] >> 4 : q[j] & 15) - less;
    }
  }
};

// A part has 64 bytes of low bits, 32 of high ones and 8 scales: value j of 128 has the low or high
// half of byte j mod 64, and the bits 2 (j / 32) of byte j mod 32.
struct Q6_K {
  static constexpr int part_values = 128;
  static void widen(const std::uint8_t* block, int part, float* to) {
    const std::uint8_t *const low = block + 64 * part, *const high = block + 128 + 32 * part,
                              *const scales = block + 192 + 8 * part;
    const float d = half_at(block + 208);
    for (int k = 0; k < 8; ++k) {
      const float scale = d * static_cast<float>(static_cast<std::int8_t>(scales[k]));
      const int first = 16 * k, half = k < 4 ? 0 : 4, bits = k / 2 * 2;
      for (int j = 0; j < 16; ++j) {
        const int q = (low[first % 64 + j] >> half & 15) | (high[first % 32 + j] >> bits & 3) << 4;
        to[first + j] = scale * static_cast<float>(q - 32);
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
