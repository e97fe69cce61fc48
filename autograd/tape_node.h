// An entry of a tape: one recorded value. For the sources of this folder.
#pragma once

#include <vector>

#include "autograd/parameter.h"
#include "autograd/tape.h"

namespace sotto::detail {

struct TapeNode {
  const char* name = "";
  std::vector<Var> inputs;
  Shape shape;
  Dtype dtype = Dtype::f32;
  SampleAxis samples = SampleAxis::shared();
  const char* module = no_text;  // the module that recorded it
  Parameter* parameter = nullptr;
  bool wants_grad = false;
  bool batchable = false;
  bool self_contained = true;  // backward needs no other node's backward
  Tape::Backward backward;
  Tape::PullBack pull_back;
};

}  // namespace sotto::detail
