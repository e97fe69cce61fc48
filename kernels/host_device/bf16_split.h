// A float as the sum of two numbers in bf16, products of which are much faster on GPUs.
#pragma once

#include "core/half.h"

namespace sotto {

inline constexpr int float_pieces = 2;
// What the sum of the pieces of x lacks of it is at most this times |x|, from 2^-110 on: the second
// is rounded to 8 bits, and x was rounded to 24.
inline constexpr double piece_rounding = 0x1.1p-17;

struct Pieces {
  bf16 piece[float_pieces];
};

// w x in pieces: zeros where w is 0, whatever x is; where it is not finite, or larger than what
// bf16 holds, their sum is not finite. The product of w and x is taken in double, so that no
// compiler can make it and a difference one.
HD inline Pieces scale_to_bf16x2(double w, bf16 x) {
  float left = w == 0 ? 0.0f : static_cast<float>(w * static_cast<double>(float{x}));
  Pieces y;
  for (bf16& piece : y.piece) {
    piece = bf16(left);
    left -= float{piece};
  }
  return y;
}

}  // namespace sotto
