// Bounds on the rounding error of sums of per-sample gradients, and on how far the terms of one
// sample swamp other samples in a sum (Higham 2002, chapter 4). For the sources of this folder;
// docs/appendix/proofs-rounding.md derives the bounds.
#pragma once

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/host_device/term_bounds.h"

namespace sotto::detail {

// Writes the error bounds and term norms (NormEstimate) of a parameter, the sums of those of its
// uses, into tensors that hold zeros. Adds the losses of Gram products to y.lost or, if this is
// undefined, to the squares.
void write_rounding_bounds(const std::vector<PerSampleGrad>& uses, const NormEstimate& y);
// Writes those of a convolution, its parameter's only use, from the squared norms [n] of its
// factors.
void write_conv_bounds(const Form& form, const Tensor& dy_squares, const Tensor& x_squares,
                       const NormEstimate& y);
// Writes those of a parameter whose only use is an outer form of one position, from the squared
// norms [n] of its factors. Only underflow adds to them.
void write_product_bounds(const Form& form, const Tensor& b_squares, const Tensor& a_squares,
                          const NormEstimate& y);

// How the terms of an outer form are summed: its bounds, given the squared norms of positions.
TermBounds outer_bounds(const Form& form);

// A bound on the rounding of a form's Gram products, relative to the square of its terms' norms.
double gram_rounding(const Form& form);

// Return the bounds of a parameter, of one use, and of a convolution. `only_use` says that the
// parameter has no other use, so that a gradient of one position is rounded only once.
NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses);
NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use);
NormEstimate conv_rounding_bounds(const PerSampleGrad& use, const Tensor& dy_squares,
                                  const Tensor& x_squares);

// The most terms that are added one after the other in a sum over a form's positions; 0: they are
// added in f64.
double longest_chain(const Form& form);

// True if each element of this use's gradient is one product, which rounds once: then
// write_product_bounds() is right if it is the only use.
bool rounds_once(const PerSampleGrad& use);

}  // namespace sotto::detail
