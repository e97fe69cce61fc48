// Bounds on the rounding error of sums of per-sample gradients, and on how far the terms of one
// sample swamp other samples in a sum (Higham 2002, chapter 4). For the sources of this folder;
// docs/appendix/proofs-rounding.md derives the bounds.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"

namespace sotto::detail {

// Returns the error bounds and term norms (NormEstimate) of one use of a parameter. `only_use` says
// that the parameter has no other use, so that a gradient of one position is rounded only once.
NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use);
// Returns the bounds of a parameter: the sums of those of its uses.
NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses);

// Returns the bounds of a convolution from the squared norms [n] of its factors.
NormEstimate conv_rounding_bounds(const Form& f, const Tensor& dy_squares, const Tensor& x_squares);
// Returns the bounds of a parameter whose only use is an outer form of one position, from the
// squared norms [n] of its factor a. Only underflow adds to them.
NormEstimate single_product_bounds(const Form& f, const Tensor& a_squares);
// True if each element of this use's gradient is one product, which rounds once: then
// single_product_bounds() are its bounds if it is the only use.
bool rounds_once(const PerSampleGrad& use);

}  // namespace sotto::detail
