// The parameters that an engine trains, as they were when the engine was made.
#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto {

// A parameter, as it was when the engine was made.
struct TrainedParameter {
  std::string name;
  const Parameter* parameter;
  Shape shape;
  Dtype dtype;
  Device device;
  const void* place = nullptr;  // of the value, at the last call
};

class TrainedParameters {
 public:
  explicit TrainedParameters(nn::Module& model);
  // Throws std::invalid_argument, with the parameter's name, if the model no longer has a
  // parameter, or if one was replaced or frozen, or has another shape, type or device. Returns true
  // if the address of a value has changed since the last call, which means that a value was
  // assigned.
  bool check_same(nn::Module& model);
  // Throws std::invalid_argument, with the parameter's name, if one holds NaN or infinity. Call
  // check_same() first.
  void check_finite() const;

 private:
  std::vector<TrainedParameter> all_;
};

}  // namespace sotto
