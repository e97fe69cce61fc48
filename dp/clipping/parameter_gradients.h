// The gradients of parameters that backward delivers, as clipping takes them: one summand for each
// privacy unit.
#pragma once

#include <utility>
#include <vector>

#include "autograd/parameter.h"
#include "autograd/per_sample/per_sample_grad.h"

namespace sotto {

// All uses of some parameters.
using ParameterUses = std::vector<std::pair<Parameter*, std::vector<PerSampleGrad>>>;

// The same gradients with one summand for each unit: by the grouping or, without one, the first
// `units` samples. What remains of captured work is known as that (PerSampleGrad::captured).
std::vector<PerSampleGrad> grouped(std::vector<PerSampleGrad> uses, const Grouping* grouping,
                                   std::int64_t units);

// sum_n w[n] G[n] of a parameter's gradient, over its uses; weights [n], f64.
Tensor weighted_sum(const std::vector<PerSampleGrad>& uses, const Tensor& weights);

// The uses as they are kept until their norms are known: materialized where that is cheaper and
// fits what is left of the budget in bytes.
std::vector<PerSampleGrad> materialize_if_cheaper(std::vector<PerSampleGrad> uses,
                                                  NormMethod norm_method, std::size_t& budget);

// Whether a total is a number: NaN and Inf do not leave a sum. (Clipped gradients are far too small
// for their sum to overflow.) The host has to wait for a total on a GPU.
bool all_finite(const Tensor& x);

}  // namespace sotto
