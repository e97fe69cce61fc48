// Rotary positions (Su et al. 2021, "RoFormer"): pairs of features are turned by angles that grow
// with the position, so that scores of queries and keys depend on distances alone.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace sotto {

// Cosines and sines of angles, [n or 1, 1, t, e / 2], for rotary().
struct RotaryAngles {
  Var cosine, sine;
};

// The angles position * frequencies[j], computed in f64 and rounded to `dtype`; positions i64
// [n, t].
RotaryAngles rotary_angles(const Var& positions, const std::vector<double>& frequencies,
                           Dtype dtype);

// With j < e / 2 and h = e / 2: y[.., j] = x[.., j] cos - x[.., j + h] sin and y[.., j + h] =
// x[.., j + h] cos + x[.., j] sin; x [.., t, e] with leading axes to which the angles broadcast.
// Throws std::invalid_argument for shapes that do not fit, and for x shared by samples whose angles
// differ.
Var rotary(const Var& x, const RotaryAngles& angles);

}  // namespace sotto
