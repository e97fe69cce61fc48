// exp and tanh in float as straight-line code, which compilers turn into vector instructions; in
// double the standard library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sotto/core/half.h"

namespace sotto::math {

HD inline double exp(double x) { return std::exp(x); }

// Within 2 units in the last place for results in the normal range; below that 0, above infinity.
// x = n ln 2 + r with |r| <= ln 2 / 2, and a Taylor polynomial for e^r (remainder r^8 / 8!).
HD inline float exp(float x) {
  constexpr float log2e = 1.44269504f;
  constexpr float ln2_high = 0.693359375f;
  constexpr float ln2_low = -2.12194440e-4f;
  constexpr float round_shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float lowest = -87.3365402f;      // e^x below is no normal float
  constexpr float highest = 88.7228317f;      // e^x above is infinite
  float clamped = x < lowest ? lowest : x;
  clamped = clamped > highest ? highest : clamped;
  const float shifted = clamped * log2e + round_shift;
  const float n = shifted - round_shift;
  const float r = (clamped - n * ln2_high) - n * ln2_low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Two factors, because 2^128 is no float although p 2^128 may be.
  const auto exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_shift);
  const std::int32_t half = exponent >> 1;
  const float y = p * std::bit_cast<float>((half + 127) << 23) *
                  std::bit_cast<float>((exponent - half + 127) << 23);
  const float bounded = x < lowest ? 0.0f : y;
  const float result = x > highest ? INFINITY : bounded;
  return x != x ? x : result;
}

HD inline double tanh(double x) { return std::tanh(x); }

// (1 - e^-2|x|) / (1 + e^-2|x|), and near 0, where that cancels, the Taylor series to x^11.
HD inline float tanh(float x) {
  const float a = x < 0 ? -x : x;
  const float t = exp(-2 * a);
  const float far = (1 - t) / (1 + t);
  const float s = x * x;
  float p = -1382.0f / 155925;
  p = p * s + 62.0f / 2835;
  p = p * s - 17.0f / 315;
  p = p * s + 2.0f / 15;
  p = p * s - 1.0f / 3;
  const float near = x + x * s * p;
  constexpr float switch_at = 0.35f;
  const float signed_far = x < 0 ? -far : far;
  return a < switch_at ? near : signed_far;
}

// 1 / (1 + e^-x), from the side that cannot overflow.
template <class T>
HD T sigmoid(T x) {
  const T e = exp(x < 0 ? x : -x);
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

}  // namespace sotto::math
