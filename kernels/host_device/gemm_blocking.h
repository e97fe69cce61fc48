// How a CPU adds up the terms of a product in f32 and f64.
#pragma once

#include <cstdint>

namespace sotto {

// So many terms are one chain of multiply-adds, and then added to the chains before: a product cut
// into several between chains, each added to what is there, has the bits of the whole.
inline constexpr std::int64_t product_chain = 384;

}  // namespace sotto
