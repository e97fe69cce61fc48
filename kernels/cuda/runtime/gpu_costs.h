// The costs by which routes are chosen on a GPU.
#pragma once

#include "kernels/backend.h"

namespace sotto {

// From the data sheet of an H200 (Nvidia, 2024), not measured: products of f32 outside of the
// tensor cores and of 16 bits on them, at a part of their peak that falls with their size, and
// memory. Sums of rounded products (rounded_product.h) are bound by the second-level cache and by
// rounding in f64. Two Gram matrices in f32 are written and read. Only the ratios matter.
inline CostModel gpu_costs(Dtype factors) {
  constexpr double bytes = 4e12, gram_bytes = 16;
  if (size_of(factors) == 2) {
    return {.gram_flops = 200e12,
            .rows_flops = 300e12,
            .sum_flops = 500e12,
            .bytes = bytes,
            .gram_bytes = gram_bytes,
            .term_sum_flops = 250e12};
  }
  return {.gram_flops = 20e12,
          .rows_flops = 20e12,
          .sum_flops = 40e12,
          .bytes = bytes,
          .gram_bytes = gram_bytes,
          .term_sum_flops = factors == Dtype::f32 ? 25e12 : 0};
}

}  // namespace sotto
