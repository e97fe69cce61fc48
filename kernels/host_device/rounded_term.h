// Rounds the terms of exact sums (Backend::add_rounded), for all devices. Device code can include
// this header.
#pragma once

#include "core/half.h"

namespace sotto {

// a + b, rounded. nvcc would fuse it with a product that is a or b, which the host does not
// (meson.build): GPUs and CPUs would round different numbers.
HD inline double unfused_sum(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}

// The multiple of `spacing`, a power of two, nearest to a term of less than 2^51 spacings: adding
// 1.5 2^52 spacings rounds away fractions of one. A spacing of 0 leaves the term unchanged.
HD inline double rounded_term(double term, double spacing) {
  const double whole = 0x1.8p52 * spacing;
  return unfused_sum(unfused_sum(term, whole), -whole);
}

}  // namespace sotto
