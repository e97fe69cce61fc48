// The parameters that an engine trains, as they were when it was made.
#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto {

class TrainedParameters {
 public:
  explicit TrainedParameters(nn::Module& model);
  // Throws std::invalid_argument, with the parameter's name, for one that the model has no longer
  // or has replaced, that is frozen, or that has another shape, type or device. Returns whether a
  // value's address has changed since the last call, so that it was assigned since.
  bool check_same(nn::Module& model);
  // Throws std::invalid_argument, with the parameter's name, for one that holds NaN or infinity.
  // Only after check_same().
  void check_finite() const;

 private:
  struct One {
    std::string name;
    const Parameter* parameter;
    Shape shape;
    Dtype dtype;
    Device device;
    const void* place = nullptr;  // of the value, at the last call
  };
  std::vector<One> all_;
};

}  // namespace sotto
