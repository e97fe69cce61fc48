// The parameters that an engine trains, as they were when it was made.
#pragma once

#include <string>
#include <vector>

#include "sotto/nn/module.h"

namespace sotto {

class TrainedParameters {
 public:
  explicit TrainedParameters(nn::Module& model);
  // Throws std::invalid_argument, naming it, for one that the model has no longer, or another in
  // its place, that is frozen, or whose shape, type or device is another.
  void check_same(nn::Module& model) const;
  // Throws std::invalid_argument, naming it, for one that holds NaN or infinity. Only after
  // check_same().
  void check_finite() const;

 private:
  struct One {
    std::string name;
    const Parameter* parameter;
    Shape shape;
    Dtype dtype;
    Device device;
  };
  std::vector<One> all_;
};

}  // namespace sotto
