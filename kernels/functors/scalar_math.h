// exp, tanh, softplus, erf and the normal distribution: in float as straight-line code, which
// compilers vectorize; in double from the standard library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/half.h"

namespace sotto::math {

HD inline double exp(double x) { return std::exp(x); }

// e^(x - low), with `low` a small correction of the exponent, as if x - low were exact: within 2
// units in the last place for results in the normal range; 0 if e^x is below it, infinity above. x
// - low = n ln 2 + r with |r| <= ln 2 / 2, and a Taylor polynomial for e^r (remainder r^8 / 8!).
HD inline float exp(float x, float low) {
  constexpr float log2e = 1.44269504f;
  constexpr float ln2_high = 0.693359375f;
  constexpr float ln2_low = -2.12194440e-4f;
  constexpr float round_shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float lowest = -87.3365402f;      // below it, e^x is no normal float
  constexpr float highest = 88.7228317f;      // above it, e^x is infinite
  float clamped = x < lowest ? lowest : x;
  clamped = clamped > highest ? highest : clamped;
  const float shifted = (clamped - low) * log2e + round_shift;
  const float n = shifted - round_shift;
  const float r = (clamped - n * ln2_high) - n * ln2_low - low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Two factors, because 2^128 is not a float although p 2^128 may be.
  const auto exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(round_shift);
  const std::int32_t half = exponent >> 1;
  const float y = p * std::bit_cast<float>((half + 127) << 23) *
                  std::bit_cast<float>((exponent - half + 127) << 23);
  const float bounded = x < lowest ? 0.0f : y;
  const float result = x > highest ? INFINITY : bounded;
  return x != x ? x : result;
}

HD inline float exp(float x) { return exp(x, 0.0f); }

HD inline double tanh(double x) { return std::tanh(x); }

// (1 - e^-2|x|) / (1 + e^-2|x|); near 0, where the difference cancels, the Taylor series to x^11.
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

// 1 / (1 + e^-x), computed without overflow.
template <class T>
HD T sigmoid(T x) {
  const T e = exp(x < 0 ? x : -x);
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

// log(1 + t) for t in [0, 1].
HD inline double log1p_of_part(double t) { return std::log1p(t); }

// log(1 + t) within 2 units in the last place, for t = e^x or any t in [0, 1]: 2 artanh(s) with s =
// t / (2 + t), which is s times a polynomial in s^2 fitted to a relative error of at most 1e-9.
HD inline float log1p_of_part(float t) {
  const float s = t / (2 + t), u = s * s;
  float p = 0.121504672f;
  p = p * u + 0.107138291f;
  p = p * u + 0.143084422f;
  p = p * u + 0.199994385f;
  p = p * u + 0.333333373f;
  return 2 * s + 2 * s * (u * p);
}

// log(1 + e^x), computed without overflow.
template <class T>
HD T softplus(T x) {
  return (x > 0 ? x : T(0)) + log1p_of_part(exp(x < 0 ? x : -x));
}

// e^(-x^2/2), and the standard normal distribution function at x.
template <class T>
struct Normal {
  T bell, below;
};

HD inline Normal<double> normal(double x) {
  return {std::exp(-x * x / 2), std::erfc(-x / std::numbers::sqrt2) / 2};
}

// Accurate to 2 and 6 units in the last place if the results are normal floats (over every third
// float: 1.4 and 5.6). With a = |x|, P(X < -a) e^(a^2/2) is u p(v), where w = 11/32 a, u = 1 / (1 +
// w) and v = (1 - w) / (1 + w). The polynomial p is fitted by the Remez algorithm to a relative
// error of at most 2e-8 for a up to 13.25; beyond, e^(-a^2/2) counts as 0.
HD inline Normal<float> normal(float x) {
  // `high` has so few bits that its square is exact: a rounded x^2 would be off by x^2/2 units.
  constexpr std::uint32_t upper_bits = 0xfffff000;
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & upper_bits);
  const float bell = exp(-0.5f * high * high, 0.5f * (x - high) * (x + high));
  const float a = x < 0 ? -x : x;
  constexpr float beyond = 14;  // keeps v defined at infinity
  const float w = 11.0f / 32 * (a > beyond ? beyond : a);
  const float u = 1 / (1 + w);
  const float v = (1 - w) * u;
  float p = -0.000110053486f;
  p = p * v + 0.000256475529f;
  p = p * v + 0.000580397286f;
  p = p * v - 0.00199115847f;
  p = p * v - 0.00457877296f;
  p = p * v + 0.0122583408f;
  p = p * v + 0.0732301217f;
  p = p * v + 0.170917231f;
  p = p * v + 0.249437415f;
  const float tail = bell * (u * p);
  return {bell, x < 0 ? tail : 1 - tail};
}

HD inline double erf(double x) { return std::erf(x); }

// Accurate to 2 units in the last place (over every third float: 1.5). For |x| >= 1 from the normal
// distribution; near 0, where that cancels, from a polynomial in x^2 for erf(x)/x - 1, with a
// relative error of erf(x)/x of at most 2e-9.
HD inline float erf(float x) {
  const float s = x * x;
  float p = 7.85387753e-5f;
  p = p * s - 8.01019826e-4f;
  p = p * s + 5.18832819e-3f;
  p = p * s - 0.0268538121f;
  p = p * s + 0.112835852f;
  p = p * s - 0.376126258f;
  p = p * s + 0.128379166f;
  const float near = x + x * p;
  const float a = x < 0 ? -x : x;
  const float far = 1 - 2 * normal(-std::numbers::sqrt2_v<float> * a).below;
  const float signed_far = x < 0 ? -far : far;
  return a < 1 ? near : signed_far;
}

}  // namespace sotto::math
