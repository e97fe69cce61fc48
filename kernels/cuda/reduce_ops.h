// The operations by which a team of threads folds its values.
#pragma once

#include "kernels/backend.h"
#include "kernels/host_device/reduction_plan.h"

namespace sotto {

// The fold of a reduction; cheap to select at run time, and free if `op` is a constant.
struct Folding {
  Reduction op;
  HD double start() const {
    switch (op) {
      case Reduction::sum: return SumFold::start();
      case Reduction::max: return MaxFold::start();
      case Reduction::min: return MinFold::start();
      default: return ProductFold::start();
    }
  }
  HD double operator()(double a, double b) const {
    switch (op) {
      case Reduction::sum: return SumFold::fold(a, b);
      case Reduction::max: return MaxFold::fold(a, b);
      case Reduction::min: return MinFold::fold(a, b);
      default: return ProductFold::fold(a, b);
    }
  }
};

}  // namespace sotto
