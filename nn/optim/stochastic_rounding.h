// Stochastic rounding to bf16: up or down with probabilities that make the expectation exact, so
// that sums of many small changes survive a 16-bit type (Gupta et al. 2015, section 3.1).
#pragma once

#include "core/random/philox.h"
#include "core/tensor.h"

namespace sotto::nn {

// y = x, each element rounded to one of its two adjacent bf16 values, to the nearer with the
// greater probability. Elements consume the draws first, first + 1, ... of the key's sequence in
// row-major order. Values of bf16, infinities and NaN stay; a value that would pass the largest
// finite bf16 is truncated to it. x is f32, or f64, which is rounded to f32 first; y is bf16,
// row-major, of x's shape; both are on the CPU.
void round_at_random(PhiloxKey key, std::uint64_t first, const Tensor& x, const Tensor& y);

}  // namespace sotto::nn
