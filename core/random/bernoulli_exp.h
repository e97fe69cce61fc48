// Bernoulli(h e^-x) in integer arithmetic, with absolute error below 2^-101. Used by the exact
// normal sampler (exact_normal.h). `Words` is a callable that returns independent uniform 64-bit
// words. Device code can include this header.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "core/random/fixed_point.h"

namespace sotto::bernoulli_exp {

enum class Verdict { below, above, open };

// Compares y, the first 64 bits of a uniform number, with height e^-x. `open` if they differ by
// less than 2^-22, which exceeds the sum of all errors: 2^-23 from the exponential times 256, 2^-40
// from the rest.
HD inline Verdict compare(Fixed64 y, Fixed64 height, Fixed64 x) {
  constexpr Fixed64 slack = one64 >> 22;
  const Fixed64 curve = multiply(height, exp_minus(x));
  if (y + slack < curve) return Verdict::below;
  return y > curve + slack ? Verdict::above : Verdict::open;
}

// True if y < height e^-x, with y to 120 bits after the point. Differences below 2^-102 count as
// not less; heights must be accurate to 2^-103.
HD inline bool decide(Fixed128 y, Fixed128 height, Fixed128 x) {
  constexpr Fixed128 slack = one128 >> 102;
  return y + slack < multiply(height, exp_minus(x));
}

// `level` + u, with the first 56 and the first 120 bits of a uniform u.
HD inline Fixed64 above_level(std::uint64_t level, std::uint64_t u) { return level << 56 | u >> 8; }
HD inline Fixed128 above_level(std::uint64_t level, std::uint64_t u, std::uint64_t rest) {
  return Fixed128{level} << 120 | Fixed128{u} << 56 | rest >> 8;
}

// True if level + u < height e^-x for a fresh uniform u; x <= 1/4.
template <class Words>
HD bool below(std::uint64_t level, Fixed128 height, Fixed128 x, Words& more) {
  const std::uint64_t u = more();
  const Verdict verdict = compare(above_level(level, u), to_fixed64(height), to_fixed64(x));
  if (verdict != Verdict::open) return verdict == Verdict::below;
  return decide(above_level(level, u, more()), height, x);
}

// True with probability e^-x, for any x.
template <class Words>
HD bool sample(Fixed128 x, Words& more) {
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

}  // namespace sotto::bernoulli_exp
