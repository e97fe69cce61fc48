#include "nn/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "autograd/memory_labels.h"
#include "core/allocator/allocator.h"
#include "core/allocator/limit_exemption.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/check_finite.h"
#include "nn/optim/stochastic_rounding.h"
#include "kernels/backend.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto::nn {

namespace {

constexpr std::int64_t block = 1 << 14;  // elements updated at a time, to stay in the cache

// Seeds the stochastic rounding of bf16 states; any value would do.
constexpr std::uint64_t state_rounding_seed = 0x5354415445;
constexpr std::uint64_t max_buffers = 8;  // buffers that a rule may keep for one parameter

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

// Returns a copy of the entry `name`, checked against the parameter's value.
Tensor saved_buffer(const std::map<std::string, Tensor>& state, const std::string& name,
                    const Tensor& value, Dtype dtype) {
  const Tensor& saved = entry(state, name);
  check(saved.shape() == value.shape() && saved.dtype() == dtype,
        "optimizer: {} is {} {} where {} {} is needed", name, sotto::name(saved.dtype()),
        saved.shape(), sotto::name(dtype), value.shape());
  Tensor buffer = dtype == value.dtype() ? empty_like(value)
                                         : Tensor::empty(value.shape(), dtype, value.device());
  copy_into(saved, buffer);
  return buffer;
}

}  // namespace

void Optimizer::add_group(const std::vector<Parameter*>& parameters, double rate, bool bf16_state) {
  const int group = groups();
  check(!parameters.empty(), "optimizer: no parameters in group {}", group);
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    check(value.dtype() == Dtype::f32 || value.dtype() == Dtype::f64,
          "optimizer: a parameter of shape {} is {}, not f32 or f64", value.shape(),
          name(value.dtype()));
    check(!bf16_state || value.device() == cpu,
          "optimizer: bf16_state needs parameters on the CPU");
    check(places_.emplace(parameter, slots_.size()).second,
          "optimizer: a parameter of shape {} of group {} is already in the optimizer",
          value.shape(), group);
    slots_.push_back(
        {.parameter = parameter, .dtype = value.dtype(), .group = group, .bf16_state = bf16_state});
  }
  rates_.push_back(rate);
  base_rates_.push_back(rate);
}

std::vector<Parameter*> Optimizer::trainable(Module& module) {
  std::vector<Parameter*> parameters;
  for (Parameter* parameter : module.parameters()) {
    if (parameter->trainable) parameters.push_back(parameter);
  }
  return parameters;
}

std::size_t Optimizer::bytes_to_come() const {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) {
    const std::size_t missing = buffers(slot.group).size() - slot.buffers.size();
    const auto elements = static_cast<std::size_t>(slot.parameter->value.numel());
    bytes += missing * Allocator::size_class(elements * size_of(slot.dtype));
  }
  return bytes;
}

void Optimizer::check_gradients(const Gradients& gradients, double noise_variance) const {
  check(noise_variance >= 0 && std::isfinite(noise_variance), "step: noise variance {}",
        noise_variance);
  std::unordered_set<const Parameter*> seen;
  for (const auto& [parameter, grad] : gradients) {
    check(grad.defined() && is_float(grad.dtype()), "step: a gradient is {}",
          grad.defined() ? name(grad.dtype()) : "undefined");
    const auto place = places_.find(parameter);
    check(place != places_.end(),
          "step: a gradient of shape {} is of a parameter not in the optimizer", grad.shape());
    const Tensor& value = parameter->value;
    check(grad.shape() == value.shape(), "step: gradient {} for a parameter {}", grad.shape(),
          value.shape());
    check(seen.insert(parameter).second, "step: two gradients for one parameter {}", value.shape());
    check(value.dtype() == slots_[place->second].dtype, "step: a parameter {} was {} and is now {}",
          value.shape(), name(slots_[place->second].dtype), name(value.dtype()));
    check(parameter->trainable, "step: a gradient for a frozen parameter {}", value.shape());
  }
}

void Optimizer::step(const Gradients& gradients, double noise_variance) {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::workspace;
  label.phase = "update";
  const LabelScope scope(label);
  check_gradients(gradients, noise_variance);
  check_finite(gradients);
  check_room(gradients);
  // All parameters are updated or none: check_room() has looked for the memory, so the limit is
  // off.
  const LimitExemption exemption;
  update_together(gradients, noise_variance);
}

// Updates the parameters of each GPU in one launch, and the others one by one.
void Optimizer::update_together(const Gradients& gradients, double noise_variance) {
  std::map<int, std::vector<UpdateArray>> arrays;
  for (const auto& [parameter, grad] : gradients) {
    Slot& slot = slots_[places_.at(parameter)];
    const Device device = grad.device();
    const auto one = device == cpu ? std::nullopt : array(slot, grad, noise_variance);
    if (one) {
      arrays[device.index].push_back(*one);
    } else {
      update(slot, grad, noise_variance);
    }
  }
  for (const auto& [index, all] : arrays) backend({DeviceKind::cuda, index}).update(all, {});
}

std::optional<UpdateArray> Optimizer::array(Slot& slot, const Tensor& grad,
                                            double noise_variance) const {
  const Tensor& value = slot.parameter->value;
  if (!elementwise() || slot.bf16_state || grad.dtype() != value.dtype() ||
      grad.device() != value.device() || !value.is_dense()) {
    return {};
  }
  ++slot.steps;
  const Update whole = update_of(slot, grad, noise_variance);
  const auto one = array_of(plan(slot.group, whole).value(), whole);
  if (!one) --slot.steps;
  label_state(slot);
  return one;
}

Optimizer::Step::Step(Optimizer& optimizer, const Gradients& gradients, double noise_variance)
    : optimizer_(optimizer), noise_variance_(noise_variance) {
  optimizer.check_gradients(gradients, noise_variance);
  optimizer.check_room(gradients);
}

void Optimizer::Step::finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                               std::int64_t end, bool finite) {
  if (!finite) check_finite(flat.slice(0, first, end), *parameter);
  Slot& slot = optimizer_.slots_[optimizer_.places_.at(parameter)];
  const Tensor grad = flat.view_as(parameter->value.shape()).value();
  if (optimizer_.in_blocks(slot, grad)) {
    if (first == 0) ++slot.steps;
    const Update whole = optimizer_.update_of(slot, grad, noise_variance_);
    optimizer_.update_blocks(slot, whole, first, end);
  } else if (end == flat.numel()) {
    optimizer_.update(slot, grad, noise_variance_);
  }
}

std::optional<UpdateArray> Optimizer::Step::array(const Parameter* parameter, const Tensor& grad) {
  Optimizer::Slot& slot = optimizer_.slots_[optimizer_.places_.at(parameter)];
  return optimizer_.array(slot, grad, noise_variance_);
}

// Throws OutOfMemory before anything changes if the state still to be made and the temporaries do
// not fit.
void Optimizer::check_room(const Gradients& gradients) const {
  std::size_t state = 0, largest = 0;
  for (const auto& [parameter, grad] : gradients) {
    const Slot& slot = slots_[places_.at(parameter)];
    const std::size_t bytes = parameter->value.bytes();
    if (slot.steps == 0) state += buffers(slot.group).size() * bytes;
    const std::size_t part = static_cast<std::size_t>(block) * size_of(slot.dtype);
    largest = std::max(largest, in_blocks(slot, grad) ? part : bytes);
  }
  if (!gradients.empty())
    allocator(gradients[0].second.device()).check_room(state + temporaries * largest);
}

// Labels the state as owned by the parameter's module.
void Optimizer::label_state(const Slot& slot) {
  for (const Tensor& buffer : slot.buffers)
    label_for(*slot.parameter, MemoryKind::optimizer_state, buffer);
}

Update Optimizer::update_of(Slot& slot, const Tensor& grad, double noise_variance) const {
  slot.buffers.resize(buffers(slot.group).size());
  return {.value = slot.parameter->value,
          .grad = grad,
          .learning_rate = learning_rate(slot.group),
          .t = slot.steps,
          .noise_variance = noise_variance,
          .buffers = slot.buffers};
}

// Returns whether the update can run block by block, so that value, gradient and state go through
// memory once and not once for every operation of the rule. The first step makes the state and
// cannot, unless the state is bf16, which only ever exists in full precision for one block.
bool Optimizer::in_blocks(const Slot& slot, const Tensor& grad) const {
  const Tensor& value = slot.parameter->value;
  const bool has_state = slot.buffers.size() == buffers(slot.group).size() &&
                         std::all_of(slot.buffers.begin(), slot.buffers.end(),
                                     [](const Tensor& buffer) { return buffer.defined(); });
  return (has_state || slot.bf16_state) && elementwise() && value.device() == cpu &&
         value.numel() > block && value.contiguous() && grad.contiguous() &&
         grad.dtype() == value.dtype();
}

void Optimizer::update(Slot& slot, const Tensor& grad, double noise_variance) const {
  const Tensor same_type = to_dtype(grad, slot.parameter->value.dtype());
  ++slot.steps;
  const Update whole = update_of(slot, same_type, noise_variance);
  if (in_blocks(slot, same_type)) return update_blocks(slot, whole, 0, grad.numel());
  if (slot.bf16_state) return apply_widened(slot, whole, 0);
  apply(slot.group, whole);
  label_state(slot);
}

// Updates part.value, the elements from `first` on, with its bf16 state converted to the
// parameter's type meanwhile.
void Optimizer::apply_widened(Slot& slot, const Update& part, std::int64_t first) const {
  const Shape& shape = slot.parameter->value.shape();
  const auto kept = [&](const Tensor& buffer) {
    const Tensor flat = buffer.view_as({-1}).value();
    return flat.slice(0, first, first + part.value.numel()).view_as(part.value.shape()).value();
  };
  std::vector<Tensor> state(slot.buffers.size());
  for (std::size_t k = 0; k < state.size(); ++k) {
    if (!slot.buffers[k].defined()) slot.buffers[k] = Tensor::empty(shape, Dtype::bf16);
    if (part.t > 1) state[k] = to_dtype(kept(slot.buffers[k]), slot.dtype);
  }
  Update wide = part;
  wide.buffers = state;
  apply(slot.group, wide);
  const auto place = static_cast<std::uint64_t>(places_.at(slot.parameter));
  for (std::size_t k = 0; k < state.size(); ++k) {
    // Each parameter and buffer has a Philox sequence of its own, which its steps consume in order.
    const PhiloxKey key{.seed = state_rounding_seed, .stream = place * max_buffers + k};
    const std::uint64_t begin =
        static_cast<std::uint64_t>(part.t - 1) * static_cast<std::uint64_t>(shape.numel()) +
        static_cast<std::uint64_t>(first);
    round_at_random(key, begin, state[k], kept(slot.buffers[k]));
  }
}

void Optimizer::update_blocks(Slot& slot, const Update& whole, std::int64_t first,
                              std::int64_t end) const {
  for (; first < end; first += block)
    update_block(slot, whole, first, std::min(first + block, end));
}

void Optimizer::update_block(Slot& slot, const Update& whole, std::int64_t first,
                             std::int64_t end) const {
  const auto part = [&](const Tensor& x) { return x.view_as({-1}).value().slice(0, first, end); };
  std::vector<Tensor> state;
  const Tensor value = part(whole.value), grad = part(whole.grad);
  Update piece{.value = value,
               .grad = grad,
               .learning_rate = whole.learning_rate,
               .t = whole.t,
               .noise_variance = whole.noise_variance,
               .buffers = {}};
  if (slot.bf16_state) return apply_widened(slot, piece, first);
  for (const Tensor& buffer : slot.buffers) state.push_back(part(buffer));
  piece.buffers = state;
  apply(slot.group, piece);
  for (std::size_t k = 0; k < state.size(); ++k) {
    // A rule may write its state in place or replace the tensor.
    if (!slot.buffers[k].shares_storage(state[k])) copy_into(state[k], part(slot.buffers[k]));
  }
}

std::vector<const Parameter*> Optimizer::parameters() const {
  std::vector<const Parameter*> all;
  for (const Slot& slot : slots_) all.push_back(slot.parameter);
  return all;
}

double Optimizer::learning_rate(int group) const {
  check(group >= 0 && group < groups(), "learning_rate: group {} of {}", group, groups());
  return rates_[static_cast<std::size_t>(group)];
}

void Optimizer::set_learning_rate(double rate) {
  for (int group = 0; group < groups(); ++group) set_learning_rate(group, rate);
}

void Optimizer::set_learning_rate(int group, double rate) {
  check(group >= 0 && group < groups(), "set_learning_rate: group {} of {}", group, groups());
  check(rate >= 0 && std::isfinite(rate), "set_learning_rate: {}", rate);
  rates_[static_cast<std::size_t>(group)] = rate;
}

void Optimizer::follow(const Schedule& schedule, std::int64_t step) {
  for (int group = 0; group < groups(); ++group) {
    set_learning_rate(group, schedule.value(step, base_rates_[static_cast<std::size_t>(group)]));
  }
  if (const auto momentum = schedule.momentum(step)) set_momentum(*momentum);
}

std::vector<std::string> Optimizer::names_of_slots(const NamedParameters& names) const {
  std::vector<std::string> found(slots_.size());
  for (const auto& [name, parameter] : names) {
    if (const auto at = places_.find(parameter); at != places_.end()) found[at->second] = name;
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    check(!found[i].empty(), "optimizer: no name for a parameter {}",
          slots_[i].parameter->value.shape());
  }
  return found;
}

std::map<std::string, Tensor> Optimizer::state(const NamedParameters& names) const {
  const std::vector<std::string> own = names_of_slots(names);
  std::map<std::string, Tensor> state;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    state[own[i] + ".steps"] = Tensor::from(std::vector<std::int64_t>{slot.steps}, {});
    if (slot.steps == 0) continue;
    const std::vector<const char*> kinds = buffers(slot.group);
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      state[own[i] + "." + kinds[k]] = clone(slot.buffers[k]);
    }
  }
  return state;
}

Optimizer::Slot Optimizer::loaded(const Slot& slot, const std::string& name,
                                  const std::map<std::string, Tensor>& state) const {
  Slot read{.parameter = slot.parameter,
            .dtype = slot.dtype,
            .group = slot.group,
            .bf16_state = slot.bf16_state};
  read.steps = saved_steps(state, name + ".steps");
  if (read.steps == 0) return read;
  for (const char* kind : buffers(slot.group)) {
    read.buffers.push_back(
        saved_buffer(state, name + "." + kind, slot.parameter->value, slot.buffer_dtype()));
  }
  return read;
}

void Optimizer::load_state(const std::map<std::string, Tensor>& state,
                           const NamedParameters& names) {
  const std::vector<std::string> own = names_of_slots(names);
  std::vector<Slot> slots;
  std::unordered_set<std::string> known;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots.push_back(loaded(slots_[i], own[i], state));
    known.insert(own[i] + ".steps");
    if (slots.back().steps == 0) continue;
    for (const char* kind : buffers(slots_[i].group)) known.insert(own[i] + "." + kind);
  }
  for (const auto& [name, tensor] : state) {
    check(known.contains(name), "optimizer: the state has {}, which this optimizer does not keep",
          name);
  }
  slots_ = std::move(slots);
  for (const Slot& slot : slots_) label_state(slot);
}

}  // namespace sotto::nn
