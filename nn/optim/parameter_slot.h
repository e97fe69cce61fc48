// A parameter of an optimizer with the state that its rule keeps, and its updates. For the sources
// of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "nn/optim/shards.h"
#include "nn/optim/update_plan.h"

namespace sotto::nn {

// A rule (nn/optim/update_rules.h) with its type erased; RuleOptimizer holds the type.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<const char*> buffers() const = 0;
  virtual void apply(const Update& update) const = 0;
  // The rule as elementwise arithmetic for the kernels; nullopt if it needs whole parameters.
  virtual bool elementwise() const = 0;
  virtual std::optional<RulePlan> plan(const Update& update) const = 0;
  // Returns a copy with another momentum. Throws as Optimizer::set_momentum() does.
  virtual std::unique_ptr<const UpdateRule> with_momentum(double momentum) const = 0;
  // The rule with another weight decay.
  virtual std::unique_ptr<const UpdateRule> with_weight_decay(double weight_decay) const = 0;
  // The options of a rule that needs whole parameters, as text.
  virtual std::string text() const = 0;
};

// The options that a group of parameters shares.
struct ParameterGroup {
  std::unique_ptr<const UpdateRule> rule;
  double rate, base_rate;
  bool bf16_state;
};

struct ParameterSlot {
  Parameter* parameter;
  const ParameterGroup* group;
  std::size_t place;  // in the optimizer
  Dtype dtype;
  std::int64_t steps = 0;
  std::vector<Tensor> buffers{};  // one for each of the rule's, or none before the first step
  // The elements that are updated here, if the parameters are divided among ranks. Gradient and
  // state then have one axis.
  std::optional<ElementRange> range{};
  const Shards* shards = nullptr;  // then, the division

  // The updated elements. Throws std::invalid_argument for a part of a value that is not row-major.
  Tensor value() const;

  Dtype buffer_dtype() const { return group->bf16_state ? Dtype::bf16 : dtype; }
};

// The elements updated at a time by an update in blocks, to stay in the cache.
inline constexpr std::int64_t block_elements = 1 << 14;

// Returns whether the update can run block by block, so that value, gradient and state go through
// memory once and not once for every operation of the rule. The first step makes the state and
// cannot, unless the state is bf16, which only ever exists in full precision for one block.
bool in_blocks(const ParameterSlot& slot);
// As above, for a gradient of the slot's type in row-major order; false for any other.
bool in_blocks(const ParameterSlot& slot, const Tensor& grad);
// Makes the parameter's step.
void update(ParameterSlot& slot, const Tensor& grad, double noise_variance);
// Makes the part of the step for the elements from `first` on whose gradients are `part`, one axis;
// requires in_blocks().
void update_part(ParameterSlot& slot, const Tensor& part, std::int64_t first,
                 double noise_variance);
// Optimizer::Step::array().
std::optional<UpdateArray> update_array(ParameterSlot& slot, const Tensor& grad,
                                        double noise_variance);
// The group's options as text, with the constants of the rule's first steps.
std::string description(const ParameterGroup& group);
// Labels the state as owned by the parameter's module.
void label_state(const ParameterSlot& slot);

}  // namespace sotto::nn
