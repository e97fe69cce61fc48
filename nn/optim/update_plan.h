// One update of a parameter by a rule (nn/optim/update_rules.h), and its elementwise form. For the
// sources of this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor.h"
#include "kernels/host_device/optimizer_constants.h"

namespace sotto {
struct Parameter;
struct UpdateArray;
}  // namespace sotto

namespace sotto::nn {

class Shards;

struct Update {
  const Tensor& value;  // written in place
  const Tensor& grad;   // of the value's shape, dtype and device
  double learning_rate;
  std::int64_t t;
  // The variance of the noise on each element of the gradient; 0 without noise.
  double noise_variance;
  // One tensor for each name in buffers(); undefined before the first step.
  std::span<Tensor> buffers;
  // The division among ranks of the parameter whose elements these are; null if they are all.
  const Shards* shards = nullptr;
  const Parameter* parameter = nullptr;
};

// The elementwise form of an update, which kernels/host_device/optimizer_update.h computes.
struct RulePlan {
  int rule;  // in UpdateRules
  OptimizerConstants constants;
  double start = 0;  // initial value of the states
};

// The update that the plan describes, on the memory of value, gradient and states; missing states
// are allocated. Returns nullopt if gradient or states are not stored densely in the value's order.
// The tensors must outlive the result.
std::optional<UpdateArray> array_of(const RulePlan& plan, const Update& update);
// Updates the value and the states, in whatever order they are stored.
void apply(const RulePlan& plan, const Update& update);

}  // namespace sotto::nn
