// Helpers of clipping for the gradients that backward delivers, with one summand per privacy unit.
#pragma once

#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/per_sample/per_sample_grad.h"

namespace sotto {

// Parameters, each with the gradients of all its uses.
using ParameterUses = std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>>;

// Returns the gradients with one summand per unit: grouped by `grouping` or, without one, the first
// `units` samples. Captured gradients stay captured (PerSampleGrad::captured) without a grouping.
std::vector<PerSampleGrad> grouped(std::vector<PerSampleGrad> uses, const Grouping* grouping,
                                   std::int64_t units);

// Returns the uses in the form in which they are kept until norms are known: each is materialized
// if that is cheaper and fits the rest of the budget in bytes, which is reduced accordingly.
std::vector<PerSampleGrad> materialize_if_cheaper(std::vector<PerSampleGrad> uses,
                                                  NormMethod norm_method, std::size_t& budget);

// True if the sum of all elements is finite, which implies that every element is: NaN and Inf
// propagate. (Clipped gradients are far too small for their sum to overflow.) Waits for a GPU.
bool all_finite(const Tensor& x);

}  // namespace sotto
