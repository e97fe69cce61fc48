// Weighted sums of per-sample gradients with bf16 factors, on devices that multiply bf16 much
// faster than f32: the scaled factor is split into two bf16 numbers (bf16_split.h). The error
// bounds of norms include the rounding of the split. The sum is not finite if an element reaches
// 2^68. For the sources of this folder.
#pragma once

#include "autograd/per_sample/forms.h"

namespace sotto::detail {

// True if the factor that weights on the form's own device scale is split: both factors are bf16.
bool is_split_into_bf16(const Form& form);

// Returns sum_n w[n] G[n] of a form that is_split_into_bf16(), for a parameter of this shape.
Tensor weighted_sum_bf16(const Form& form, const Shape& shape, const Tensor& weights);

}  // namespace sotto::detail
