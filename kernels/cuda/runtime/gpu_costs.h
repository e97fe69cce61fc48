// The costs by which routes are chosen on a GPU.
#pragma once

#include "kernels/backend.h"

namespace sotto {

// From the data sheet of an H200 (Nvidia, 2024), not measured: f32 products outside of the tensor
// cores, and memory. Only the ratios matter.
inline CostModel gpu_costs() {
  return {.gram_flops = 20e12, .rows_flops = 20e12, .sum_flops = 40e12, .bytes = 4e12};
}

}  // namespace sotto
