// The Box-Muller transform of gaussian.h: two normals from two words, without calls or branches, so
// that loops over it vectorize and every device computes equal results. Device code can include
// this header.
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

inline constexpr std::uint64_t one_bits = 0x3ff0000000000000;       // the bits of 1.0
inline constexpr std::uint64_t fraction_mask = 0x000fffffffffffff;  // 52 bits
inline constexpr double ln2 = 0.693147180559945309417;
inline constexpr double half_pi = 1.57079632679489661923;
inline constexpr double root2 = 1.41421356237309504880;
// The bits of a pair's words that choose the binary exponent of its uniform; if all are zero,
// further words are needed.
inline constexpr int exponent_bits = 22;

// x < 2^52 as a double, without a conversion instruction, which not every CPU has for vectors.
HD inline double small_integer(std::uint64_t x) {
  constexpr std::uint64_t bits_of_2_52 = 0x4330000000000000;
  return std::bit_cast<double>(x | bits_of_2_52) - 0x1p52;
}

// The 22 exponent bits; zero with probability 2^-22.
HD inline std::uint64_t exponent_choice(std::uint64_t radius, std::uint64_t angle) {
  return radius >> 52 << 10 | (angle & 1023);
}

// c_0 r^n + c_1 r^(n-1) + ... + c_n.
template <class... C>
HD inline double horner(double r, double sum, C... c) {
  ((sum = sum * r + c), ...);
  return sum;
}

// ln t for t in [1/sqrt 2, sqrt 2]: 2 artanh s, s = (t - 1) / (t + 1), |s| <= 0.172. The first
// omitted term is below 1e-17 of the sum.
HD inline double log_near_one(double t) {
  const double s = (t - 1) / (t + 1);
  const double r = s * s;
  const double sum = horner(r, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                            1.0 / 7, 1.0 / 5, 1.0 / 3);
  return 2 * (s + s * (r * sum));
}

// sin x by Taylor's series for |x| <= pi / 4, to 1e-17.
HD inline double sin_small(double x) {
  const double r = x * x;
  const double sum =
      horner(r, 1.0 / 355687428096000 /* 17! */, -1.0 / 1307674368000, 1.0 / 6227020800,
             -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  return x + x * (r * sum);
}

HD inline double cos_small(double x) {
  const double r = x * x;
  const double sum = horner(r, 1.0 / 20922789888000 /* 16! */, -1.0 / 87178291200, 1.0 / 479001600,
                            -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2);
  return 1 + r * sum;
}

// sqrt(-2 ln u), u = 2^-(zeros + 1) (1 + f), with f from the lower 52 bits of a word.
HD inline double radius(std::uint64_t word, double zeros) {
  const double t = std::bit_cast<double>((word & fraction_mask) | one_bits);
  // Near u = 1 the logarithm is small and must not be the difference of two large numbers.
  const bool upper = t > root2;
  const double log_t = log_near_one(upper ? 0.5 * t : t);
  return std::sqrt(2 * ((zeros + (upper ? 0.0 : 1.0)) * ln2 - log_t));
}

}  // namespace box_muller

// Two standard normals, r cos a and r sin a (Box and Muller 1958). `zeros` is the number of zero
// bits before the first one bit of the uniform's binary expansion, as a double; leading_zeros() of
// exponent_choice() gives it, except when all 22 bits are zero.
HD inline NormalPair normal_pair(std::uint64_t radius_word, std::uint64_t angle_word,
                                 double zeros) {
  using namespace box_muller;
  const double r = radius(radius_word, zeros);
  // Two bits choose the quadrant, 52 bits the position within +-pi/4 of its middle, symmetrically.
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
  // The exponent field of `choice` as a floating-point number is the index of its highest bit.
  const std::uint64_t field = std::bit_cast<std::uint64_t>(box_muller::small_integer(choice)) >> 52;
  constexpr double bias = 1023;
  return box_muller::exponent_bits - 1 + bias - box_muller::small_integer(field);
}

}  // namespace sotto
