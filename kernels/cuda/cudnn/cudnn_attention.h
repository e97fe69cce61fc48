// Fused attention by cuDNN, in builds that have it.
#pragma once

#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// cuDNN's plan, found once per form of the problem: its preferred one among the deterministic
// plans. nullptr if there is none, or no cuDNN.
const AttentionPlan* attention_plan(DeviceState& state, const AttentionProblem& problem);

}  // namespace sotto
