// How far rounding may take sums of per-sample gradients from their exact values, and how much a
// sample's terms may swamp those of others (Higham 2002, chapter 4). For the sources of this
// folder; docs/appendix/proofs-rounding.md derives the bounds.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"

namespace sotto::detail {

// The error bounds and term norms (NormEstimate) of one use of a parameter. `only_use`: the
// parameter has no other, so that a gradient of one position is rounded once only.
NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use);
// Those of a parameter: the sums over its uses.
NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses);

// Those of a convolution, from the squared norms of its factors.
NormEstimate conv_rounding_bounds(const Form& f, const Tensor& dy_squares, const Tensor& x_squares);
// Those of a parameter whose only use is an outer form of one position, from the squared norms of
// `a`: what underflow may add.
NormEstimate single_product_bounds(const Form& f, const Tensor& a_squares);
// Whether single_product_bounds() are those of this use, if it is the only one.
bool rounds_once(const PerSampleGrad& use);

}  // namespace sotto::detail
