// Weighted sums of per-sample gradients with bf16 factors, on devices that multiply bf16 much
// faster than f32: the scaled factor is split into two bf16 numbers (bf16_split.h). The error
// bounds of norms include the rounding of the split. The sum is not finite if an element reaches
// 2^68. For the sources of this folder.
#pragma once

#include <span>

#include "autograd/per_sample/forms.h"

namespace sotto::detail {

// True if the factor that weights on the form's own device scale is split: both factors are bf16.
bool is_split_into_bf16(const Form& form);

// Weights are scaled up by this before the factor is split: bf16 holds no digits below 2^-133, and
// after scaling these correspond to digits of the factor that f32 could not hold either.
inline constexpr double bf16_lift = 0x1p60;
// Weights times bf16_lift, f64.
Tensor lifted(const Tensor& weights);
// Writes bf16_lift times the weighted sums over blocks of samples, which end before ends[k] and
// have at least one: y [blocks, elements of the parameter]. `weights` are lifted().
void lifted_sums_bf16(const Form& form, const Tensor& weights, std::span<const std::int64_t> ends,
                      const Tensor& y);

// Returns sum_n w[n] G[n] of a form that is_split_into_bf16(), for a parameter of this shape.
Tensor weighted_sum_bf16(const Form& form, const Shape& shape, const Tensor& weights);

}  // namespace sotto::detail
