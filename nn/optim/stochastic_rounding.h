// Rounding to bf16 at random: up or down with probabilities that make the expectation exact, so
// that sums of many small changes survive a narrow type (Gupta et al. 2015, section 3.1).
#pragma once

#include "core/random/philox.h"
#include "core/tensor.h"

namespace sotto::nn {

// y = x rounded to one of its two neighbours in bf16, the nearer the likelier, by draws first,
// first + 1, ... of the key's sequence, one for each element in row-major order. Values of bf16,
// infinities and NaN stay; what would pass the largest finite value is cut off there. x is f32, or
// f64, which is rounded to f32 first; y is bf16, row-major, of x's shape; both are on the CPU.
void round_at_random(PhiloxKey key, std::uint64_t first, const Tensor& x, const Tensor& y);

}  // namespace sotto::nn
