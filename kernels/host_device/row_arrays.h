// Arrays that a primitive goes through together.
#pragma once

#include "core/view.h"

namespace sotto {

// y[n] = |x[n]|^2 for row-major x [n, k]; y f64.
struct RowNorms {
  View x, y;
};

// y[k] += sum_n round(w[n] x[n,k]) as Backend::add_rounded computes it.
struct RoundedRows {
  View x;  // [n, k], row-major
  double spacing;
  View y;  // [k], f64
};

// y = x, or y += x, as Backend::copy_all computes it.
struct ArrayCopy {
  View x, y;
};

}  // namespace sotto
