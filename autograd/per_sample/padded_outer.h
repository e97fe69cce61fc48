// The outer form of a weight whose output gradients have further columns of zeros
// (autograd/ops/padded_columns.h): they add nothing to a norm, and are left out of sums.
#pragma once

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/per_sample_grad.h"

namespace sotto::detail {

// As PerSampleGrad::outer(), for a matrix of `shape` [o, i] and b [n, t, p] with p >= o, whose
// columns from o on are zero.
PerSampleGrad padded_outer(const Tensor& b, const Tensor& a, const Shape& shape);

// The columns of b that belong to a parameter of `shape`, as a view.
Tensor own_columns(const Outer& f, const Shape& shape);

}  // namespace sotto::detail
