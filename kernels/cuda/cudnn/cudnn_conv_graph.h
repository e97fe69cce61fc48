// Convolutions as cuDNN graphs.
#pragma once

#include "kernels/cuda/cudnn/conv_problem.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace sotto {

// The ids of x, w and y.
inline constexpr std::int64_t conv_ids[] = {0, 1, 2};

// Up to `max` plans, the library's preferred one first, with sums in float. All are deterministic,
// because a second backward pass must reproduce the gradients whose norms were clipped. f32 factors
// are not rounded unless the problem allows tf32, and sums are never in 16 bits. `transforms` also
// admits Winograd and FFT, which round more; never for weight gradients, whose norms must be
// accurate. Throws Unsupported if the library has no plan.
std::vector<Descriptor> conv_plans(const Call& call, const PlanTarget& target,
                                   const ConvProblem& problem, bool transforms, std::size_t max);

}  // namespace sotto
