// Weighted sums of per-sample gradients, a few samples at a time. For the sources of this folder.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/per_sample/forms.h"

namespace sotto::detail {

// PerSampleGrad::sum(weights) of a parameter of this shape.
Tensor weighted_sum(const Form& form, const Shape& shape, const Tensor& weights);

// Calls f(chunk, chunk_ends) at least once, for consecutive samples: the chunk is theirs that have
// a weight, times their weights, and copies one factor, or both where one has 16 bits. `ends` are
// those of blocks of samples: no block is split over chunks, and chunk_ends are the ends of the
// chunk's blocks, counted in the chunk.
void for_each_weighted(
    const Form& form, const Shape& shape, const Tensor& weights, std::span<const std::int64_t> ends,
    const std::function<void(const Form& chunk, std::span<const std::int64_t> chunk_ends)>& f);

}  // namespace sotto::detail
