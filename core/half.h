// The two 16-bit floating-point types, as storage: arithmetic is done in float. The GPU's
// conversion instructions round identically, except for the bits of a NaN.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define HD __host__ __device__
#else
#define HD
#endif

namespace sotto {

// bfloat16: the upper half of a float, rounded to nearest even.
struct bf16 {
  std::uint16_t bits = 0;  // the encoding

  bf16() = default;
  // Rounds to nearest even; NaN stays NaN.
  HD explicit bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const auto u = std::bit_cast<std::uint32_t>(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (u >> 16) | 0x40u
                                          : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
  }
  // Exact.
  HD operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

// IEEE 754 binary16, rounded to nearest even; overflow gives infinity, subnormals are kept.
struct f16 {
  std::uint16_t bits = 0;  // the encoding

  f16() = default;
  // Rounds to nearest even; NaN stays NaN.
  HD explicit f16(float x) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = (u >> 16) & 0x8000u;
    const std::uint32_t magnitude = u & 0x7fffffffu;
    std::uint32_t h;
    if (magnitude > 0x7f800000u) {
      h = 0x7e00u;  // NaN
    } else if (magnitude >= 0x477ff000u) {
      h = 0x7c00u;  // 65520 and above round to infinity
    } else if (magnitude < 0x38800000u) {
      // Adding one half aligns the subnormal's last bit with the float's last bit, so the sum
      // rounds once.
      const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
      h = std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u;
    } else {
      const std::uint32_t odd = (magnitude >> 13) & 1u;
      h = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | h);
#endif
  }
  // Exact.
  HD operator float() const {
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
    const std::uint32_t rest = bits & 0x7fffu;
    std::uint32_t u;
    if (rest >= 0x7c00u) {
      u = (rest << 13) + 0x70000000u;  // infinity and NaN
    } else if (rest >= 0x0400u) {
      u = (rest << 13) + 0x38000000u;
    } else {
      u = std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f);
    }
    return std::bit_cast<float>(sign | u);
#endif
  }
};

}  // namespace sotto
