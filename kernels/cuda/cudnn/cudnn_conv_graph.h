// Convolutions in cuDNN's terms.
#pragma once

#include "kernels/cuda/cudnn/conv_problem.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace sotto {

// Of x, w and y, whichever of them is written.
inline constexpr std::int64_t conv_ids[] = {0, 1, 2};

// Up to `most` ways of doing it, the library's favourite first, with sums in float. All give the
// same bits each time: what is computed again, for clipping in two passes, is what was clipped.
// Factors of f32 are whole unless the problem allows tf32, and sums are never narrow.
// `transforms`: by transforms (Winograd, FFT), too, which round more; never for weights, whose
// norms are exact. Throws Unsupported for what the library does not know.
std::vector<Descriptor> conv_plans(const Call& call, const PlanTarget& target,
                                   const ConvProblem& problem, bool transforms, std::size_t most);

}  // namespace sotto
