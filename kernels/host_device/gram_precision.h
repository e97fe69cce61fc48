// When a norm by Gram products is good enough, for all devices. Device code can include this
// header.
#pragma once

#include <cmath>

#include "core/half.h"

namespace sotto {

// Whether a Gram sum, of terms whose magnitudes add up to `magnitude`, holds enough digits;
// otherwise it is to be had from the gradient itself. A product's rounding is about 2^-24 sqrt(k)
// of its terms in float, and below this share of the sum of magnitudes it could show in the fifth
// digit of the result. Products of finite factors may overflow in float though the gradient does
// not.
HD inline bool gram_is_accurate(double value, double magnitude) {
  constexpr double cancellation_share = 0.02;
  const bool finite = magnitude < HUGE_VAL;
  return magnitude == 0 || (finite && std::fabs(value) >= cancellation_share * magnitude);
}

}  // namespace sotto
