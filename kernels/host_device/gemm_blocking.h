// The blocking of sums in the CPU's products of f32 and f64.
#pragma once

#include <cstdint>

namespace sotto {

// The k-block of a product: this many terms form one chain of fused multiply-adds, which is then
// added to the sum of the chains before it. A product that is split between chains, each part added
// to the previous ones, therefore has the bits of the unsplit product.
inline constexpr std::int64_t product_chain = 384;

}  // namespace sotto
