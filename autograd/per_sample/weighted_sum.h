// Weighted sums of per-sample gradients, a few samples at a time. For the sources of this folder.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/per_sample/forms.h"

namespace sotto::detail {

// Implements PerSampleGrad::sum(weights) for a parameter of this shape.
Tensor weighted_sum(const Form& form, const Shape& shape, const Tensor& weights);

// Calls f(chunk, chunk_ends) for consecutive chunks of samples, at least once. A chunk holds the
// samples' gradients times their weights, without the samples of weight 0 if the host reads the
// weights; it copies the first factor, or both factors if one has 16 bits. `ends` are the ends of
// blocks of samples: no block is split over chunks, and chunk_ends are the ends of the chunk's
// blocks within the chunk.
void for_each_weighted(
    const Form& form, const Shape& shape, const Tensor& weights, std::span<const std::int64_t> ends,
    const std::function<void(const Form& chunk, std::span<const std::int64_t> chunk_ends)>& f);

}  // namespace sotto::detail
