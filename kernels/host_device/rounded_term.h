// Terms of sums that are exact (Backend::add_rounded), for all devices. Device code can include
// this header.
#pragma once

#include "core/half.h"

namespace sotto {

// The multiple of `spacing`, a power of two, that is nearest to a term of less than 2^51 spacings:
// the sum with 1.5 2^52 spacings has no place for less than one. With a spacing of 0, the term.
HD inline double rounded_term(double term, double spacing) {
  const double whole = 0x1.8p52 * spacing;
  return term + whole - whole;
}

}  // namespace sotto
