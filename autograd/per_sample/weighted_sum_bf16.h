// Weighted sums of per-sample gradients whose factors are bf16, on devices that multiply these much
// faster than f32: the scaled factor is split into two bf16 numbers (bf16_split.h), whose rounding
// the error bounds of norms include. From 2^68 on the sum is not finite. For the sources of this
// folder.
#pragma once

#include "autograd/per_sample/forms.h"

namespace sotto::detail {

// Whether a factor that is scaled by weights on its own device is split.
bool is_split_into_bf16(const Form& form);

// sum_n w[n] G[n] of a form for which this holds, of a parameter of this shape.
Tensor weighted_sum_bf16(const Form& form, const Shape& shape, const Tensor& weights);

}  // namespace sotto::detail
