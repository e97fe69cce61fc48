// The blocking of sums in products of f32 and f64, and the roundings that follow from it. Device
// code can include this header.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/half.h"

namespace sotto {

// The k-block of a product: this many terms form one chain of fused multiply-adds, which is then
// added to the sum of the chains before it. A product that is split between chains, each part added
// to the previous ones, therefore has the bits of the unsplit product.
inline constexpr std::int64_t product_chain = 384;

// As product_chain, in products of bf16 by instructions for pairs of terms: those for tiles add 32
// terms at once to a sum, the others have chains of this length.
inline constexpr std::int64_t pair_chain = 96;

// The most terms that one chain of Gram products has, over the elements of a factor.
inline constexpr std::int64_t gram_chain = 64;

// The most positions of an image that one chain of a convolution's weight gradient has; a longer
// sum has chains of at least a third as many.
inline constexpr std::int64_t conv_chain = 1024;

// A bound on the number of roundings that affect a term, if `terms` terms are added in chains of
// chain / 3 to `chain` terms, and then the chains' sums one after the other.
HD inline double roundings(double terms, double chain) {
  return terms <= chain ? terms : chain + std::ceil(3 * terms / chain);
}

}  // namespace sotto
