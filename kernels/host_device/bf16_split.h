// Splits a float into the sum of two bf16 numbers, whose products are much faster on GPUs.
#pragma once

#include "core/half.h"

namespace sotto {

inline constexpr int float_bf16x2 = 2;
// Relative error of the sum of the two pieces of x, for |x| >= 2^-110: the second piece is rounded
// to 8 bits, and x was rounded to 24.
inline constexpr double bf16x2_rounding = 0x1.1p-17;

struct Bf16x2 {
  bf16 piece[float_bf16x2];
};

// w x as two bf16 pieces; zeros if w is 0, whatever x is. If w x is not finite, or exceeds the
// range of bf16, the sum of the pieces is not finite. The product is computed in double, so that no
// compiler fuses it with a difference.
HD inline Bf16x2 scale_to_bf16x2(double w, bf16 x) {
  float left = w == 0 ? 0.0f : static_cast<float>(w * static_cast<double>(float{x}));
  Bf16x2 y;
  for (bf16& piece : y.piece) {
    piece = bf16(left);
    left -= float{piece};
  }
  return y;
}

}  // namespace sotto
