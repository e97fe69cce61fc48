// Sums and their kin over axes, softmax and normalisation. An empty list of axes means all. An op
// over the sample axis mixes samples.
#pragma once

#include "autograd/tape.h"

namespace sotto {

Var sum(const Var& x, const Shape& axes = {}, bool keepdim = false);
Var mean(const Var& x, const Shape& axes = {}, bool keepdim = false);
// Squared deviations divided by count - correction.
Var variance(const Var& x, const Shape& axes = {}, bool keepdim = false, double correction = 1);
Var standard_deviation(const Var& x, const Shape& axes = {}, bool keepdim = false,
                       double correction = 1);
// The Euclidean norm; its derivative at zero is zero.
Var norm(const Var& x, const Shape& axes = {}, bool keepdim = false);
// (sum |x|^p)^(1/p) for p > 0, infinity included. At zero its derivative is zero, as far as it has
// one: for p below 1 elements of zero have none.
Var p_norm(const Var& x, double p, const Shape& axes = {}, bool keepdim = false);
Var logsumexp(const Var& x, const Shape& axes = {}, bool keepdim = false);

// A sum over every axis but the samples': [n]. What makes a private loss of anything.
Var sum_per_sample(const Var& x);
Var mean_per_sample(const Var& x);

Var softmax(const Var& x, int axis = -1);
Var log_softmax(const Var& x, int axis = -1);

// (x - mean) / sqrt(variance + eps) over the last `features` axes together, with the biased
// variance; without the mean when not `centered`.
Var normalize(const Var& x, int features, double eps, bool centered = true);
// The same over groups of c / groups neighbouring channels and all that follows them, x [n, c,
// ...], in whatever order x lies in memory. Throws unless groups divides c.
Var normalize_groups(const Var& x, std::int64_t groups, double eps);

// y[.., i, ..] = sum_j matrix[i, j] x[.., j, ..] along one axis, with a constant [i, j].
Var map_axis(const Var& x, int axis, const Tensor& matrix);

}  // namespace sotto
