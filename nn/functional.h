// Normalisation with scale and shift, and other functions of tape values and shared weights. Each
// sample is normalised by its own statistics; the variance is the biased one.
#pragma once

#include <optional>

#include "autograd/ops/normalization.h"

namespace sotto::nn {

using sotto::ScaleShift;

// (x - mean) / sqrt(variance + eps), with mean and variance over groups of c / groups adjacent
// channels and all axes after them; x [n, c, ...], weight and bias [c] (Wu and He 2018). Throws
// std::invalid_argument unless `groups` divides c.
Var group_norm(const Var& x, std::int64_t groups, const ScaleShift& affine = {}, double eps = 1e-5);
// group_norm with one group for each channel (Ulyanov et al. 2016).
Var instance_norm(const Var& x, const ScaleShift& affine = {}, double eps = 1e-5);
// (x - mean) / sqrt(variance + eps) over the last axes, whose sizes are `normalized`; weight and
// bias have that shape (Ba et al. 2016). The sample axis may be any other axis.
Var layer_norm(const Var& x, const Shape& normalized, const ScaleShift& affine = {},
               double eps = 1e-5);
// x / sqrt(mean(x^2) + eps) over the last axes (Zhang and Sennrich 2019).
Var rms_norm(const Var& x, const Shape& normalized, const ScaleShift& affine = {},
             double eps = 1e-6);

// x / (k + alpha / size * sum of x^2 over `size` adjacent channels)^beta (Krizhevsky et al. 2012);
// x [n, c, ...].
Var local_response_norm(const Var& x, std::int64_t size, double alpha = 1e-4, double beta = 0.75,
                        double k = 1);

// x where x > 0, else weight x (He et al. 2015); weight [1], or [c] for the channels of axis 1.
Var prelu(const Var& x, const Var& weight);
// y[.., o] = sum_ij x1[.., i] weight[o, i, j] x2[.., j] + bias[o].
Var bilinear(const Var& x1, const Var& x2, const Var& weight,
             const std::optional<Var>& bias = std::nullopt);

// Reparameterized weights: functions of shared weights, whose per-sample gradients stay exact.
// (w - mean) / sqrt(variance + eps) over all axes but the first, with the biased variance (Qiao et
// al. 2019), times gain, which has one element for each row of w.
Var standardized_weight(const Var& w, double eps = 1e-5,
                        const std::optional<Var>& gain = std::nullopt);
// g v / |v| with the norm over all axes but the first; g has one element for each row of v
// (Salimans and Kingma 2016).
Var normalized_weight(const Var& v, const Var& g);

}  // namespace sotto::nn
