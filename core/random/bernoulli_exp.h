// Coins that fall with a probability of height e^-x, right to 2^-101: what ExactNormalSampler
// decides by, with integers alone. `Words` is called for independent uniform words. Device code can
// include this header.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "core/random/fixed_point.h"

namespace sotto::coin {

enum class Verdict { below, above, open };

// Whether y < height e^-x, of which the 64 bits given are the beginning. Left open within 2^-22,
// which is more than all errors together: 2^-23 from the exponential times 256, 2^-40 from others.
HD inline Verdict compare(Fixed64 y, Fixed64 height, Fixed64 x) {
  constexpr Fixed64 slack = one64 >> 22;
  const Fixed64 curve = multiply(height, exp_minus(x));
  if (y + slack < curve) return Verdict::below;
  return y > curve + slack ? Verdict::above : Verdict::open;
}

// The same with 120 bits after the point. What they leave open, within 2^-102, counts as above;
// heights are right to 2^-103.
HD inline bool decide(Fixed128 y, Fixed128 height, Fixed128 x) {
  constexpr Fixed128 slack = one128 >> 102;
  return y + slack < multiply(height, exp_minus(x));
}

// `level` + u with the first 56 bits of a uniform u, and with 120 of them.
HD inline Fixed64 above_level(std::uint64_t level, std::uint64_t u) { return level << 56 | u >> 8; }
HD inline Fixed128 above_level(std::uint64_t level, std::uint64_t u, std::uint64_t rest) {
  return Fixed128{level} << 120 | Fixed128{u} << 56 | rest >> 8;
}

// Whether level + u < height e^-x for a fresh uniform u; x <= 1/4.
template <class Words>
HD bool below(std::uint64_t level, Fixed128 height, Fixed128 x, Words& more) {
  const std::uint64_t u = more();
  const Verdict verdict = compare(above_level(level, u), to_fixed64(height), to_fixed64(x));
  if (verdict != Verdict::open) return verdict == Verdict::below;
  return decide(above_level(level, u, more()), height, x);
}

// True with probability e^-x.
template <class Words>
HD bool survives(Fixed128 x, Words& more) {
  constexpr Fixed128 quarter = one128 / 4;
  constexpr Fixed128 quarter_factor = exp_minus(quarter);
  for (; x > quarter; x -= quarter) {
    if (!below(0, quarter_factor, 0, more)) return false;
  }
  return below(0, one128, x, more);
}

// lambda (y^2 - strip^2) for y = strip + place.
template <class Fixed>
HD Fixed exponent(Fixed lambda, Fixed strip, Fixed place) {
  return multiply(lambda, multiply(place, static_cast<Fixed>(2 * strip + place)));
}

}  // namespace sotto::coin
