// An entry of a tape: one recorded value. For the sources of this folder.
#pragma once

#include <functional>
#include <vector>

#include "autograd/adjoint.h"
#include "autograd/parameter.h"

namespace sotto::detail {

struct TapeNode {
  using Backward = std::function<void(const Tensor& dy, Adjoint& adjoint)>;
  using PullBack = std::function<PerSampleGrad(const PerSampleGrad& gradient)>;

  const char* name = "";
  std::vector<Var> inputs;
  Shape shape;
  Dtype dtype = Dtype::f32;
  SampleAxis samples = SampleAxis::shared();
  const char* module = no_text;  // the module that recorded it
  Parameter* parameter = nullptr;
  bool wants_grad = false;
  bool batchable = false;
  Backward backward;
  PullBack pull_back;
};

}  // namespace sotto::detail
