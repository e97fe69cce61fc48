// Sums and other reductions over axes, and softmax. An empty list of axes means all.
// A reduction over the sample axis mixes samples, which a private tape refuses.
#pragma once

#include "autograd/tape.h"

namespace sotto {

// The sum, and the mean, over `axes`. With `keepdim` reduced axes stay with size 1, else they are
// dropped.
Var sum(const Var& x, const Shape& axes = {}, bool keepdim = false);
Var mean(const Var& x, const Shape& axes = {}, bool keepdim = false);  // the mean
// The sum of squared deviations from the mean, divided by their number minus `correction`.
Var variance(const Var& x, const Shape& axes = {}, bool keepdim = false, double correction = 1);
// sqrt(variance()), whose gradient is infinite at a variance of 0.
Var standard_deviation(const Var& x, const Shape& axes = {}, bool keepdim = false,
                       double correction = 1);
// The Euclidean norm; its derivative at zero is zero.
Var norm(const Var& x, const Shape& axes = {}, bool keepdim = false);
// (sum |x|^p)^(1/p) for p > 0, infinity included. Its derivative at zero is zero; for p < 1 it is
// undefined at elements of zero.
Var p_norm(const Var& x, double p, const Shape& axes = {}, bool keepdim = false);
// log sum exp(x) over `axes`, shifted by the maximum so that it does not overflow.
Var logsumexp(const Var& x, const Shape& axes = {}, bool keepdim = false);

// The sum over every axis except the sample axis: [n]. It turns any value into a private loss.
Var sum_per_sample(const Var& x);
Var mean_per_sample(const Var& x);  // the mean instead of the sum

// exp(x) / sum exp(x) along one axis, and its logarithm.
Var softmax(const Var& x, int axis = -1);
Var log_softmax(const Var& x, int axis = -1);  // ln softmax(x), without overflow

// y[.., i, ..] = sum_j matrix[i, j] x[.., j, ..] along one axis, with a constant matrix [i, j].
Var map_axis(const Var& x, int axis, const Tensor& matrix);

}  // namespace sotto
