// What a device's own library of convolutions is asked for.
#pragma once

#include "core/view.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

// What is written: y from x and w, x from y and w, or w from y and x.
enum class ConvPass { forward, data, weight };

// Views as in Backend::conv, not empty, all of one dtype; all three row-major or all channels-last.
// A gradient takes the place of what it is of.
struct ConvProblem {
  ConvPass pass;
  View x, w, y;
  Window window;
  bool tf32;  // factors of f32 may be rounded to 11 bits
};

// How the library does it.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual void run(void* x, void* w, void* y) const = 0;
};

}  // namespace sotto
