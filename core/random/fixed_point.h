// Fixed-point numbers in [0, 256) for decisions beyond double precision: 64 bits for a fast first
// comparison, 128 bits if that is undecided.
#pragma once

#include <array>
#include <cstdint>

namespace sotto {

using Fixed64 = std::uint64_t;       // x 2^56
using Fixed128 = unsigned __int128;  // x 2^120

inline constexpr Fixed64 one64 = Fixed64{1} << 56;
inline constexpr Fixed128 one128 = Fixed128{1} << 120;

// The upper 64 bits, rounded down.
constexpr Fixed64 to_fixed64(Fixed128 x) { return static_cast<Fixed64>(x >> 64); }

// a b for a b < 256; too small by less than 1 unit in the last place.
constexpr Fixed64 multiply(Fixed64 a, Fixed64 b) {
  return static_cast<Fixed64>(static_cast<Fixed128>(a) * b >> 56);
}

// a b for a b < 256; too small by less than 3 units in the last place.
constexpr Fixed128 multiply(Fixed128 a, Fixed128 b) {
  const Fixed128 a1 = a >> 64, a0 = static_cast<std::uint64_t>(a);
  const Fixed128 b1 = b >> 64, b0 = static_cast<std::uint64_t>(b);
  return (a1 * b1 << 8) + (a1 * b0 >> 56) + (a0 * b1 >> 56) + (a0 * b0 >> 120);
}

// e^-x for x <= 1/4, within 2^-31: the first eight terms of the series; the ninth is below 2^-31.3.
constexpr Fixed64 exp_minus(Fixed64 x) {
  constexpr std::array<Fixed64, 8> coefficient{one64,      one64,       one64 / 2,   one64 / 6,
                                               one64 / 24, one64 / 120, one64 / 720, one64 / 5040};
  Fixed64 sum = coefficient[7];
  for (int k = 6; k >= 0; --k) sum = coefficient[k] - multiply(x, sum);
  return sum;
}

// e^-x for x <= 1/4, within 8 units in the last place: 1 - x (1 - x/2 (1 - x/3 (..))). Each step
// from the second on rounds by at most 4 units, of which less than 2 reach the result, and the 26th
// term is below 2^-140.
constexpr Fixed128 exp_minus(Fixed128 x) {
  Fixed128 sum = one128;
  for (unsigned k = 25; k > 0; --k) sum = one128 - multiply(x, sum) / k;
  return sum;
}

// e^-x for x < 8, within 2^-111: (e^(-x/32))^32. Each squaring at most doubles the error and adds 3
// units.
constexpr Fixed128 exp_minus_large(Fixed128 x) {
  constexpr int squarings = 5;
  Fixed128 power = exp_minus(x >> squarings);
  for (int i = 0; i < squarings; ++i) power = multiply(power, power);
  return power;
}

}  // namespace sotto
