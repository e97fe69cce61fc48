// A model while it is only used, and not trained.
#pragma once

#include <vector>

#include "nn/module.h"

namespace sotto::nn {

// Freezes all parameters while it lives, so that tapes keep no values for a backward pass.
class Frozen {
 public:
  explicit Frozen(Module& model) {
    for (Parameter* parameter : model.parameters()) {
      if (parameter->trainable) trained_.push_back(parameter);
      parameter->trainable = false;
    }
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  ~Frozen() {
    for (Parameter* parameter : trained_) parameter->trainable = true;
  }

 private:
  std::vector<Parameter*> trained_;
};

// The device of the first parameter; the CPU without any.
inline Device device_of(Module& model) {
  const std::vector<Parameter*> parameters = model.parameters();
  return parameters.empty() ? cpu : parameters[0]->value.device();
}

}  // namespace sotto::nn
