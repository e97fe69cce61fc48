// Attention by cuDNN, where this build has it.
#pragma once

#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// How cuDNN does it, found once for each form; nullptr where it cannot or is not there. Of its
// ways, all of which give the same bits each time, its first choice.
const AttentionPlan* attention_plan(DeviceState& state, const AttentionProblem& problem);

}  // namespace sotto
