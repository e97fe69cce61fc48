// Attention as a cuDNN graph: products and the operations on scores between them, in a pattern for
// which the library has one kernel (Dao et al. 2022, "FlashAttention").
#pragma once

#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"

namespace sotto {

// The ids of tensors with an address; scale, hidden and one are numbers on the host.
namespace attention_id {
enum : std::int64_t {
  q,
  k,
  v,
  y,
  stats,
  dy,
  dq,
  dk,
  dv,
  projection,
  bias,
  scale,
  hidden,
  one,
  others
};
}

// The library's plans, its preferred one first. The forward pass is deterministic. So is backward
// on GPUs of compute capability 9: the gradients of all scores are stored in the workspace, two
// bytes each, so that sums over keys have a fixed order (cudnn-frontend builds this graph for these
// GPUs when asked for a deterministic one). Throws Unsupported if the library has no plan.
std::vector<Descriptor> attention_plans(const Call& call, const PlanTarget& target,
                                        const AttentionProblem& problem, std::size_t max);

}  // namespace sotto
