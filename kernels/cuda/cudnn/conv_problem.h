// The problem that the convolution library solves, and its plan.
#pragma once

#include "core/view.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// The pass: computes y from x and w, x from y and w, or w from y and x.
enum class ConvPass { forward, data, weight };

// Views as in Backend::conv, not empty, all of one dtype; all row-major or all channels-last.
// Gradients take the names x, w and y of their values.
struct ConvProblem {
  ConvPass pass;
  View x, w, y;
  Window window;
  bool tf32;  // f32 factors may be rounded to 11 bits
};

// The library's plan for a problem.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual void run(void* x, void* w, void* y) const = 0;
};

}  // namespace sotto
