// Decides whether a Gram norm is accurate enough, for all devices. Device code can include this
// header.
#pragma once

#include <cmath>

#include "core/half.h"

namespace sotto {

// True if a Gram sum has enough digits, given the sum `magnitude` of its terms' absolute values; if
// not, it must be recomputed from the gradient. The relative rounding error of a product in float
// is about 2^-24 sqrt(k) of its terms; below this fraction of `magnitude` it could show in the
// fifth digit of the result. An infinite magnitude also fails: products of finite factors may
// overflow although the gradient does not.
HD inline bool gram_is_accurate(double value, double magnitude) {
  constexpr double cancellation_share = 0.02;
  const bool finite = magnitude < HUGE_VAL;
  return magnitude == 0 || (finite && std::fabs(value) >= cancellation_share * magnitude);
}

}  // namespace sotto
