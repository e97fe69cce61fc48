// Two normals from two words: the arithmetic of gaussian.h, without calls or branches, so that a
// loop over it runs in vectors and every device does the same. Device code can include this header.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/half.h"

namespace sotto {

struct NormalPair {
  double cosine;
  double sine;
};

namespace box_muller {

inline constexpr std::uint64_t one_bits = 0x3ff0000000000000;       // of 1.0
inline constexpr std::uint64_t fraction_mask = 0x000fffffffffffff;  // 52 bits
inline constexpr double ln2 = 0.693147180559945309417;
inline constexpr double half_pi = 1.57079632679489661923;
inline constexpr double root2 = 1.41421356237309504880;
// Bits that choose the binary exponent of the uniform before more words are needed.
inline constexpr int exponent_bits = 22;

// x < 2^52 as a double, without a conversion instruction: not every machine has one for vectors.
HD inline double small_integer(std::uint64_t x) {
  constexpr std::uint64_t bits_of_2_52 = 0x4330000000000000;
  return std::bit_cast<double>(x | bits_of_2_52) - 0x1p52;
}

// The 22 bits, zero once in 4 million times.
HD inline std::uint64_t exponent_choice(std::uint64_t radius, std::uint64_t angle) {
  return radius >> 52 << 10 | (angle & 1023);
}

// ln t for t in [1/sqrt 2, sqrt 2]: 2 artanh s, s = (t - 1) / (t + 1), |s| <= 0.172. The first term
// left out is under 1e-17 of the sum.
HD inline double log_near_one(double t) {
  const double s = (t - 1) / (t + 1);
  const double r = s * s;
  double sum = 1.0 / 21;
  sum = sum * r + 1.0 / 19;
  sum = sum * r + 1.0 / 17;
  sum = sum * r + 1.0 / 15;
  sum = sum * r + 1.0 / 13;
  sum = sum * r + 1.0 / 11;
  sum = sum * r + 1.0 / 9;
  sum = sum * r + 1.0 / 7;
  sum = sum * r + 1.0 / 5;
  sum = sum * r + 1.0 / 3;
  return 2 * (s + s * (r * sum));
}

// Taylor's series for |x| <= pi / 4, to 1e-17.
HD inline double sin_small(double x) {
  const double r = x * x;
  double sum = 1.0 / 355687428096000;  // 17!
  sum = sum * r - 1.0 / 1307674368000;
  sum = sum * r + 1.0 / 6227020800;
  sum = sum * r - 1.0 / 39916800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r - 1.0 / 5040;
  sum = sum * r + 1.0 / 120;
  sum = sum * r - 1.0 / 6;
  return x + x * (r * sum);
}

HD inline double cos_small(double x) {
  const double r = x * x;
  double sum = 1.0 / 20922789888000;  // 16!
  sum = sum * r - 1.0 / 87178291200;
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r - 1.0 / 3628800;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r - 1.0 / 720;
  sum = sum * r + 1.0 / 24;
  sum = sum * r - 1.0 / 2;
  return 1 + r * sum;
}

// sqrt(-2 ln u), u = 2^-(zeros + 1) (1 + fraction), the fraction from the lower 52 bits of a word.
HD inline double radius(std::uint64_t word, double zeros) {
  const double t = std::bit_cast<double>((word & fraction_mask) | one_bits);
  // Around u = 1 the logarithm's small value must not come from a difference of two large ones.
  const bool upper = t > root2;
  const double log_t = log_near_one(upper ? 0.5 * t : t);
  return std::sqrt(2 * ((zeros + (upper ? 0.0 : 1.0)) * ln2 - log_t));
}

}  // namespace box_muller

// Standard normals by Box and Muller 1958: r cos a, r sin a. `zeros` is how many zeros a fair coin
// showed before its first one, a double; exponent_choice() tells the first 22 throws.
HD inline NormalPair normal_pair(std::uint64_t radius_word, std::uint64_t angle_word,
                                 double zeros) {
  using namespace box_muller;
  const double r = radius(radius_word, zeros);
  // Two bits choose the quadrant, 52 the place within +-pi/4 of its middle, symmetric around it.
  const double place =
      std::bit_cast<double>((angle_word >> 10 & fraction_mask) | one_bits) - 1.5 + 0x1p-53;
  const double c = r * cos_small(half_pi * place);
  const double s = r * sin_small(half_pi * place);
  const bool swap = (angle_word >> 62 & 1) != 0;
  const bool negate = (angle_word >> 63) != 0;
  const double cosine = swap ? -s : c;
  const double sine = swap ? c : s;
  return {negate ? -cosine : cosine, negate ? -sine : sine};
}

// Leading zeros of the 22 bits `choice`, as a double; choice > 0.
HD inline double leading_zeros(std::uint64_t choice) {
  // The exponent field of the choice as a floating-point number is its highest bit.
  const std::uint64_t field = std::bit_cast<std::uint64_t>(box_muller::small_integer(choice)) >> 52;
  constexpr double bias = 1023;
  return box_muller::exponent_bits - 1 + bias - box_muller::small_integer(field);
}

}  // namespace sotto
