// Normalisation with scale and shift.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

// The affine map after normalisation, y = x weight + bias; both are optional. If all samples share
// them, they cost no pass of their own.
struct ScaleShift {
  std::optional<Var> weight = {};  // scale
  std::optional<Var> bias = {};    // shift
  // True: y has the precision of a 16-bit tape, for an x of f32, too. Products would convert y;
  // other readers lose digits.
  bool writes_16bit = false;
};

// (x - mean) / sqrt(variance + eps) over the last `features` axes together, with the biased
// variance. With `centered` false the mean is not subtracted. weight and bias have an element for
// each of these axes' elements.
Var normalize(const Var& x, int features, double eps, bool centered = true,
              const ScaleShift& affine = {});
// normalize() over groups of c / groups neighbouring channels and all axes after them, for x [n, c,
// ...] in any memory order; weight and bias have an element for each channel. Throws unless groups
// divides c.
Var normalize_groups(const Var& x, std::int64_t groups, double eps, const ScaleShift& affine = {});

}  // namespace sotto
