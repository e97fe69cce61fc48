#include "nn/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "core/allocator/allocator.h"
#include "core/allocator/limit_exemption.h"
#include "kernels/backend.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/check_finite.h"
#include "nn/optim/parameter_slot.h"
#include "nn/optim/schedule.h"
#include "nn/optim/shards.h"

namespace sotto::nn {

namespace {

const Tensor& entry(const std::map<std::string, Tensor>& state, const std::string& name) {
  const auto at = state.find(name);
  check(at != state.end(), "optimizer: the state has no {}", name);
  return at->second;
}

std::int64_t saved_steps(const std::map<std::string, Tensor>& state, const std::string& name) {
  const Tensor& steps = entry(state, name);
  check(steps.dtype() == Dtype::i64 && steps.rank() == 0,
        "optimizer: {} is {} {} where a single i64 is needed", name, sotto::name(steps.dtype()),
        steps.shape());
  const std::int64_t value = steps.to_vector<std::int64_t>()[0];
  check(value >= 0, "optimizer: {} is {}", name, value);
  return value;
}

// Returns a copy of some elements, [elements].
Tensor own_part(const Tensor& whole, ElementRange range) {
  return clone(contiguous(whole).view_as({-1}).value().slice(0, range.first, range.end));
}

// Returns a copy of the slot's part of the entry `name`, checked against the parameter's value.
Tensor saved_buffer(const std::map<std::string, Tensor>& state, const std::string& name,
                    const ParameterSlot& slot) {
  const Tensor &saved = entry(state, name), &value = slot.parameter->value;
  const Dtype dtype = slot.buffer_dtype();
  check(saved.shape() == value.shape() && saved.dtype() == dtype,
        "optimizer: {} is {} {} where {} {} is needed", name, sotto::name(saved.dtype()),
        saved.shape(), sotto::name(dtype), value.shape());
  if (slot.range) return own_part(saved, *slot.range).to(value.device());
  Tensor buffer = dtype == value.dtype() ? empty_like(value)
                                         : Tensor::empty(value.shape(), dtype, value.device());
  copy_into(saved, buffer);
  return buffer;
}

// Returns the slot with a saved state.
ParameterSlot loaded(const ParameterSlot& slot, const std::string& name,
                     const std::map<std::string, Tensor>& state) {
  ParameterSlot read{.parameter = slot.parameter,
                     .group = slot.group,
                     .place = slot.place,
                     .dtype = slot.dtype,
                     .steps = saved_steps(state, name + ".steps"),
                     .range = slot.range,
                     .shards = slot.shards};
  if (read.steps == 0) return read;
  for (const char* kind : slot.group->rule->buffers())
    read.buffers.push_back(saved_buffer(state, name + "." + kind, slot));
  return read;
}

}  // namespace

struct Optimizer::State {
  ParameterSlot& slot_of(const Parameter* parameter) { return slots[places.at(parameter)]; }
  void check_gradients(const Gradients& gradients, double noise_variance) const;
  // Checks the parameters that gradients of these shapes belong to.
  void check_parameters(const std::vector<std::pair<const Parameter*, Shape>>& gradients,
                        double noise_variance) const;
  // Throws OutOfMemory before anything changes if the state still to be made and the temporaries do
  // not fit.
  void check_room(const Gradients& gradients) const;
  // The bytes of state that the parameter's step makes, and those that it takes for a moment.
  struct Room {
    std::size_t state, temporary;
  };
  Room room_of(const ParameterSlot& slot, bool blocks) const;
  void update_together(const Gradients& gradients, double noise_variance);
  // The name of each slot's parameter.
  std::vector<std::string> named(const NamedParameters& names) const;

  std::deque<ParameterGroup> groups;  // which stay at their addresses
  std::vector<ParameterSlot> slots;
  std::unordered_map<const Parameter*, std::size_t> places;
  std::shared_ptr<const Shards> shards;  // null if the parameters are not divided
};

void Optimizer::State::check_gradients(const Gradients& gradients, double noise_variance) const {
  std::vector<std::pair<const Parameter*, Shape>> shapes;
  for (const auto& [parameter, grad] : gradients) {
    check(grad.defined() && is_float(grad.dtype()), "step: a gradient is {}",
          grad.defined() ? name(grad.dtype()) : "undefined");
    shapes.emplace_back(parameter, grad.shape());
  }
  check_parameters(shapes, noise_variance);
}

void Optimizer::State::check_parameters(
    const std::vector<std::pair<const Parameter*, Shape>>& gradients, double noise_variance) const {
  check(noise_variance >= 0 && std::isfinite(noise_variance), "step: noise variance {}",
        noise_variance);
  std::unordered_set<const Parameter*> seen;
  for (const auto& [parameter, shape] : gradients) {
    const auto place = places.find(parameter);
    check(place != places.end(),
          "step: a gradient of shape {} is of a parameter not in the optimizer", shape);
    const Tensor value = slots[place->second].value();
    check(shape == value.shape(), "step: gradient {} for a parameter {}", shape, value.shape());
    check(seen.insert(parameter).second, "step: two gradients for one parameter {}", value.shape());
    const Dtype dtype = slots[place->second].dtype;
    check(value.dtype() == dtype, "step: a parameter {} was {} and is now {}", value.shape(),
          name(dtype), name(value.dtype()));
    check(parameter->trainable, "step: a gradient for a frozen parameter {}", value.shape());
  }
}

Optimizer::State::Room Optimizer::State::room_of(const ParameterSlot& slot, bool blocks) const {
  const std::size_t bytes = slot.value().bytes();
  return {slot.steps == 0 ? slot.group->rule->buffers().size() * bytes : 0,
          blocks ? static_cast<std::size_t>(block_elements) * size_of(slot.dtype) : bytes};
}

void Optimizer::State::check_room(const Gradients& gradients) const {
  Room all{};
  for (const auto& [parameter, grad] : gradients) {
    const ParameterSlot& slot = slots[places.at(parameter)];
    const auto [state, temporary] = room_of(slot, in_blocks(slot, grad));
    all = {all.state + state, std::max(all.temporary, temporary)};
  }
  if (!gradients.empty())
    allocator(gradients[0].second.device()).check_room(all.state + temporaries * all.temporary);
}

// Updates the parameters of each GPU in one launch, and those of the CPU one by one.
void Optimizer::State::update_together(const Gradients& gradients, double noise_variance) {
  std::map<int, std::vector<UpdateArray>> arrays;
  for (const auto& [parameter, grad] : gradients) {
    ParameterSlot& slot = slot_of(parameter);
    const Device device = grad.device();
    const auto one = device == cpu ? std::nullopt : update_array(slot, grad, noise_variance);
    if (one) {
      arrays[device.index].push_back(*one);
    } else {
      update(slot, grad, noise_variance);
    }
  }
  for (const auto& [index, all] : arrays) backend({DeviceKind::cuda, index}).update(all, {});
}

std::vector<std::string> Optimizer::State::named(const NamedParameters& names) const {
  std::vector<std::string> found(slots.size());
  for (const auto& [name, parameter] : names) {
    if (const auto at = places.find(parameter); at != places.end()) found[at->second] = name;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    check(!found[i].empty(), "optimizer: no name for a parameter {}",
          slots[i].parameter->value.shape());
  }
  return found;
}

Optimizer::Optimizer() : state_(std::make_unique<State>()) {}

Optimizer::~Optimizer() = default;

void Optimizer::add_group(const std::vector<Parameter*>& parameters, double rate, bool bf16_state,
                          std::unique_ptr<const UpdateRule> rule) {
  const int index = groups();
  check(!parameters.empty(), "optimizer: no parameters in group {}", index);
  const ParameterGroup& group =
      state_->groups.emplace_back(ParameterGroup{std::move(rule), rate, rate, bf16_state});
  std::vector<ParameterSlot>& slots = state_->slots;
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    check(value.dtype() == Dtype::f32 || value.dtype() == Dtype::f64,
          "optimizer: a parameter of shape {} is {}, not f32 or f64", value.shape(),
          name(value.dtype()));
    check(!bf16_state || value.device() == cpu,
          "optimizer: bf16_state needs parameters on the CPU");
    check(state_->places.emplace(parameter, slots.size()).second,
          "optimizer: a parameter of shape {} of group {} is already in the optimizer",
          value.shape(), index);
    slots.push_back(
        {.parameter = parameter, .group = &group, .place = slots.size(), .dtype = value.dtype()});
  }
}

std::vector<Parameter*> Optimizer::trainable(Module& module) {
  std::vector<Parameter*> parameters;
  for (Parameter* parameter : module.parameters()) {
    if (parameter->trainable) parameters.push_back(parameter);
  }
  return parameters;
}

void Optimizer::step(const Gradients& gradients, double noise_variance) {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::workspace;
  label.phase = "update";
  const LabelScope scope(label);
  state_->check_gradients(gradients, noise_variance);
  check_finite(gradients);
  state_->check_room(gradients);
  // All parameters are updated or none: check_room() has looked for the memory, so the limit is
  // off.
  const LimitExemption exemption;
  state_->update_together(gradients, noise_variance);
}

Optimizer::Step::Step(Optimizer& optimizer, const Gradients& gradients, double noise_variance)
    : optimizer_(optimizer), noise_variance_(noise_variance) {
  optimizer.state_->check_gradients(gradients, noise_variance);
  optimizer.state_->check_room(gradients);
}

Optimizer::Step::Step(Optimizer& optimizer, const std::vector<Parameter*>& parameters,
                      double noise_variance)
    : optimizer_(optimizer), noise_variance_(noise_variance) {
  State& state = *optimizer.state_;
  std::vector<std::pair<const Parameter*, Shape>> shapes;
  for (const Parameter* parameter : parameters)
    shapes.emplace_back(parameter, parameter->value.shape());
  state.check_parameters(shapes, noise_variance);
  State::Room all{};
  for (const Parameter* parameter : parameters) {
    const auto [own, temporary] = state.room_of(state.slot_of(parameter), takes_blocks(parameter));
    all = {all.state + own, std::max(all.temporary, temporary)};
  }
  allocator(cpu).check_room(all.state + (temporaries + 1) * all.temporary);  // and the gradient
}

bool Optimizer::Step::takes_blocks(const Parameter* parameter) const {
  return in_blocks(optimizer_.state_->slot_of(parameter));
}

void Optimizer::Step::finished_block(const Parameter* parameter, const Tensor& block,
                                     std::int64_t first, bool finite) {
  if (!finite) check_finite(block, *parameter);
  update_part(optimizer_.state_->slot_of(parameter), block, first, noise_variance_);
}

void Optimizer::Step::finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                               std::int64_t end, bool finite) {
  ParameterSlot& slot = optimizer_.state_->slot_of(parameter);
  const Tensor grad = flat.view_as(slot.value().shape()).value(), block = flat.slice(0, first, end);
  if (in_blocks(slot, grad)) return finished_block(parameter, block, first, finite);
  if (!finite) check_finite(block, *parameter);
  if (end == flat.numel()) update(slot, grad, noise_variance_);
}

std::optional<UpdateArray> Optimizer::Step::array(const Parameter* parameter, const Tensor& grad) {
  return update_array(optimizer_.state_->slot_of(parameter), grad, noise_variance_);
}

std::vector<const Parameter*> Optimizer::parameters() const {
  std::vector<const Parameter*> all;
  for (const ParameterSlot& slot : state_->slots) all.push_back(slot.parameter);
  return all;
}

std::size_t Optimizer::bytes_to_come() const {
  std::size_t bytes = 0;
  for (const ParameterSlot& slot : state_->slots) {
    const std::size_t missing = slot.group->rule->buffers().size() - slot.buffers.size();
    const auto elements = static_cast<std::size_t>(slot.value().numel());
    bytes += missing * Allocator::size_class(elements * size_of(slot.dtype));
  }
  return bytes;
}

int Optimizer::groups() const { return static_cast<int>(state_->groups.size()); }

std::vector<std::string> Optimizer::group_descriptions() const {
  std::vector<std::string> all;
  for (const ParameterGroup& group : state_->groups) all.push_back(description(group));
  return all;
}

double Optimizer::learning_rate(int group) const {
  check(group >= 0 && group < groups(), "learning_rate: group {} of {}", group, groups());
  return state_->groups[static_cast<std::size_t>(group)].rate;
}

void Optimizer::set_learning_rate(double rate) {
  for (int group = 0; group < groups(); ++group) set_learning_rate(group, rate);
}

void Optimizer::set_learning_rate(int group, double rate) {
  check(group >= 0 && group < groups(), "set_learning_rate: group {} of {}", group, groups());
  check(rate >= 0 && std::isfinite(rate), "set_learning_rate: {}", rate);
  state_->groups[static_cast<std::size_t>(group)].rate = rate;
}

namespace {

// Changes all groups or none.
template <class Changed>
void change_rules(std::deque<ParameterGroup>& groups, const Changed& changed) {
  std::vector<std::unique_ptr<const UpdateRule>> rules;
  for (const ParameterGroup& group : groups) rules.push_back(changed(*group.rule));
  for (std::size_t i = 0; i < rules.size(); ++i) groups[i].rule = std::move(rules[i]);
}

}  // namespace

void Optimizer::set_momentum(double momentum) {
  change_rules(state_->groups,
               [&](const UpdateRule& rule) { return rule.with_momentum(momentum); });
}

void Optimizer::set_weight_decay(double weight_decay) {
  change_rules(state_->groups,
               [&](const UpdateRule& rule) { return rule.with_weight_decay(weight_decay); });
}

void Optimizer::follow(const Schedule& schedule, std::int64_t step) {
  for (int group = 0; group < groups(); ++group) {
    const double base = state_->groups[static_cast<std::size_t>(group)].base_rate;
    set_learning_rate(group, schedule.value(step, base));
  }
  if (const auto momentum = schedule.momentum(step)) set_momentum(*momentum);
}

void Optimizer::divide(std::shared_ptr<const Shards> shards) {
  check(!state_->shards || &state_->shards->ranks() == &shards->ranks(),
        "optimizer: its state is divided among other ranks");
  for (ParameterSlot& slot : state_->slots) {
    slot.shards = shards.get();
    if (slot.range) continue;
    slot.range = shards->range(*slot.parameter);
    for (Tensor& buffer : slot.buffers) buffer = own_part(buffer, *slot.range);
  }
  state_->shards = std::move(shards);
}

std::map<std::string, Tensor> Optimizer::state(const NamedParameters& names) const {
  const std::vector<std::string> own = state_->named(names);
  std::map<std::string, Tensor> state;
  const Shards* const shards = state_->shards.get();
  for (const ParameterSlot& slot : state_->slots) {
    const std::string& name = own[slot.place];
    state[name + ".steps"] = Tensor::from(std::vector<std::int64_t>{slot.steps}, {});
    if (slot.steps == 0) continue;
    const std::vector<const char*> kinds = slot.group->rule->buffers();
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const Tensor& buffer = slot.buffers[k];
      state[name + "." + kinds[k]] =
          shards ? shards->whole(*slot.parameter, buffer) : clone(buffer);
    }
  }
  if (shards != nullptr && shards->ranks().rank() != 0) state.clear();
  return state;
}

void Optimizer::load_state(const std::map<std::string, Tensor>& state,
                           const NamedParameters& names) {
  const std::vector<std::string> own = state_->named(names);
  std::vector<ParameterSlot> slots;
  std::unordered_set<std::string> known;
  for (const ParameterSlot& slot : state_->slots) {
    const std::string& name = own[slot.place];
    slots.push_back(loaded(slot, name, state));
    known.insert(name + ".steps");
    if (slots.back().steps == 0) continue;
    for (const char* kind : slot.group->rule->buffers()) known.insert(name + "." + kind);
  }
  for (const auto& [name, tensor] : state) {
    check(known.contains(name), "optimizer: the state has {}, which this optimizer does not keep",
          name);
  }
  state_->slots = std::move(slots);
  for (const ParameterSlot& slot : state_->slots) label_state(slot);
}

}  // namespace sotto::nn
