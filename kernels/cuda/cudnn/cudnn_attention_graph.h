// Attention in cuDNN's terms: products and what is done to scores between them, in a pattern that
// the library has one kernel for (Dao et al. 2022, "FlashAttention").
#pragma once

#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace sotto {

// What has an address, by the ids that plans know it by; the last three are numbers of the host's.
namespace attention_id {
enum : std::int64_t { q, k, v, y, stats, dy, dq, dk, dv, projection, scale, hidden, one, others };
}

// The library's ways of doing it, its favourite first. Forwards they give the same bits each time;
// on the way back, for GPUs of compute capability 9, too: the slopes of all scores lie in the
// workspace, two bytes each, so that sums over keys have an order (for these GPUs cudnn-frontend
// makes the same graph where a deterministic way is asked for). Throws Unsupported for what the
// library does not know.
std::vector<Descriptor> attention_plans(const Call& call, const PlanTarget& target,
                                        const AttentionProblem& problem, std::size_t most);

}  // namespace sotto
