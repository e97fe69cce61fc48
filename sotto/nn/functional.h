// Normalisation with scale and shift, on tape values. Statistics are each sample's own; the
// variance is the biased one.
#pragma once

#include <optional>

#include "sotto/autograd/tape.h"

namespace sotto::nn {

// What follows normalisation: y = x weight + bias, each optional and shared by all samples.
struct ScaleShift {
  std::optional<Var> weight;
  std::optional<Var> bias;
};

// (x - mean) / sqrt(variance + eps) over groups of c / groups neighbouring channels and all that
// follows them; x [n, c, ...], weight and bias [c] (Wu and He 2018). Throws std::invalid_argument
// unless groups divides c.
Var group_norm(const Var& x, std::int64_t groups, const ScaleShift& affine = {}, double eps = 1e-5);
// One group for each channel (Ulyanov et al. 2016).
Var instance_norm(const Var& x, const ScaleShift& affine = {}, double eps = 1e-5);
// Over the last axes, of sizes `normalized`, the shape of weight and bias too (Ba et al. 2016).
// Samples may lie along any other axis.
Var layer_norm(const Var& x, const Shape& normalized, const ScaleShift& affine = {},
               double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) over the last axes (Zhang and Sennrich 2019).
Var rms_norm(const Var& x, const Shape& normalized, const ScaleShift& affine = {},
             double eps = 1e-6);

}  // namespace sotto::nn
