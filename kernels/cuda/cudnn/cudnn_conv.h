// Convolutions by cuDNN, in builds that have it.
#pragma once

#include "kernels/cuda/cudnn/conv_problem.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// cuDNN's plan, found once per problem, with sums in float; nullptr if there is none, or no cuDNN.
// By default its preferred one among the deterministic plans; with SOTTO_CUDNN=fast in the
// environment, the fastest of these in a trial, which overwrites the output.
const ConvPlan* conv_plan(DeviceState& state, const ConvProblem& problem);

}  // namespace sotto
