// Tensors of a model that no training changes, but that stand in its files.
#pragma once

#include <functional>
#include <string>

#include "core/tensor.h"

namespace sotto::nn {

// A module with tensors that are no parameters and never trained, but stand in files: the
// statistics of a batch norm. load_pretrained() fills them in, save_pretrained() writes them.
class HoldsStatistics {
 public:
  virtual ~HoldsStatistics() = default;
  // Calls f for each tensor with its name in the module: "running_mean".
  virtual void visit_statistics(
      const std::function<void(const std::string& name, Tensor& value)>& f) = 0;
};

}  // namespace sotto::nn
