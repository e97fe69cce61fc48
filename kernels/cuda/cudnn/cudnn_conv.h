// Convolutions by cuDNN, where this build has it.
#pragma once

#include "kernels/cuda/cudnn/conv_problem.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// How cuDNN does it, found once for each problem, with sums in float; nullptr where it cannot or is
// not there. By default its first choice among the deterministic ways; with SOTTO_CUDNN=fast in the
// environment the fastest of those in a trial, which writes to the output.
const ConvPlan* conv_plan(DeviceState& state, const ConvProblem& problem);

}  // namespace sotto
