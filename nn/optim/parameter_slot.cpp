#include "nn/optim/parameter_slot.h"

#include <algorithm>

#include "autograd/memory_labels.h"
#include "core/random/philox.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/stochastic_rounding.h"

namespace sotto::nn {

namespace {

// Seeds the stochastic rounding of bf16 states; any value would do.
constexpr std::uint64_t state_rounding_seed = 0x5354415445;
constexpr std::uint64_t max_buffers = 8;  // buffers that a rule may keep for one parameter

Update update_of(ParameterSlot& slot, const Tensor& value, const Tensor& grad,
                 double noise_variance) {
  slot.buffers.resize(slot.group->rule->buffers().size());
  return {.value = value,
          .grad = grad,
          .learning_rate = slot.group->rate,
          .t = slot.steps,
          .noise_variance = noise_variance,
          .buffers = slot.buffers,
          .shards = slot.shards,
          .parameter = slot.parameter};
}

// Updates part.value, the slot's elements from `first` on, with its bf16 state converted to the
// parameter's type meanwhile.
void apply_widened(ParameterSlot& slot, const Update& part, std::int64_t first) {
  const Shape shape = slot.value().shape();
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
  slot.group->rule->apply(wide);
  const auto place = static_cast<std::uint64_t>(slot.place);
  for (std::size_t k = 0; k < state.size(); ++k) {
    // Each parameter and buffer has a Philox sequence of its own, which its steps consume in order.
    const PhiloxKey key{.seed = state_rounding_seed, .stream = place * max_buffers + k};
    const std::int64_t element = first + (slot.range ? slot.range->first : 0);
    const std::uint64_t begin = static_cast<std::uint64_t>(part.t - 1) *
                                    static_cast<std::uint64_t>(slot.parameter->value.numel()) +
                                static_cast<std::uint64_t>(element);
    round_at_random(key, begin, state[k], kept(slot.buffers[k]));
  }
}

// `grad` is that of the block, one axis.
void update_block(ParameterSlot& slot, const Update& whole, std::int64_t first,
                  const Tensor& grad) {
  const std::int64_t end = first + grad.numel();
  const auto part = [&](const Tensor& x) { return x.view_as({-1}).value().slice(0, first, end); };
  std::vector<Tensor> state;
  const Tensor value = part(whole.value);
  Update piece{.value = value,
               .grad = grad,
               .learning_rate = whole.learning_rate,
               .t = whole.t,
               .noise_variance = whole.noise_variance,
               .buffers = {}};
  if (slot.group->bf16_state) return apply_widened(slot, piece, first);
  for (const Tensor& buffer : slot.buffers) state.push_back(part(buffer));
  piece.buffers = state;
  slot.group->rule->apply(piece);
  for (std::size_t k = 0; k < state.size(); ++k) {
    // A rule may write its state in place or replace the tensor.
    if (!slot.buffers[k].shares_storage(state[k])) copy_into(state[k], part(slot.buffers[k]));
  }
}

// `part` is the gradient of the elements from `first` on, one axis.
void update_blocks(ParameterSlot& slot, const Update& whole, std::int64_t first,
                   const Tensor& part) {
  for (std::int64_t at = 0; at < part.numel(); at += block_elements)
    update_block(slot, whole, first + at,
                 part.slice(0, at, std::min(at + block_elements, part.numel())));
}

}  // namespace

Tensor ParameterSlot::value() const {
  if (!range) return parameter->value;
  check(parameter->value.contiguous(),
        "step: a parameter {} that ranks share is no longer row-major", parameter->value.shape());
  return parameter->value.view_as({-1}).value().slice(0, range->first, range->end);
}

std::string description(const ParameterGroup& group) {
  std::string text = fmt::format("rate {}{}", group.rate, group.bf16_state ? " bf16_state" : "");
  for (const char* buffer : group.rule->buffers()) text += fmt::format(" {}", buffer);
  for (const std::int64_t t : {1, 2, 3}) {
    const Tensor none;
    const auto plan = group.rule->plan({.value = none,
                                        .grad = none,
                                        .learning_rate = group.rate,
                                        .t = t,
                                        .noise_variance = 1,
                                        .buffers = {}});
    if (!plan) return text + group.rule->text();
    const OptimizerConstants& c = plan->constants;
    text +=
        fmt::format("; step {}: rule {} {} {} {} {} {} {} {} {} {} {} {} {} {}", t, plan->rule,
                    c.rate, c.decay, c.decoupled_decay, c.momentum, c.one_minus_dampening, c.beta2,
                    c.correction, c.offset, c.eps, c.nesterov, c.maximize, c.centered, plan->start);
  }
  return text;
}

void label_state(const ParameterSlot& slot) {
  for (const Tensor& buffer : slot.buffers)
    label_for(*slot.parameter, MemoryKind::optimizer_state, buffer);
}

bool in_blocks(const ParameterSlot& slot) {
  const Tensor value = slot.value();
  const bool has_state = slot.buffers.size() == slot.group->rule->buffers().size() &&
                         std::all_of(slot.buffers.begin(), slot.buffers.end(),
                                     [](const Tensor& buffer) { return buffer.defined(); });
  return (has_state || slot.group->bf16_state) && slot.group->rule->elementwise() &&
         value.device() == cpu && value.numel() > block_elements && value.contiguous();
}

bool in_blocks(const ParameterSlot& slot, const Tensor& grad) {
  return in_blocks(slot) && grad.contiguous() && grad.dtype() == slot.parameter->value.dtype();
}

void update(ParameterSlot& slot, const Tensor& grad, double noise_variance) {
  const Tensor value = slot.value(), same_type = to_dtype(grad, value.dtype());
  ++slot.steps;
  const Update whole = update_of(slot, value, same_type, noise_variance);
  if (in_blocks(slot, same_type))
    return update_blocks(slot, whole, 0, same_type.view_as({-1}).value());
  if (slot.group->bf16_state) return apply_widened(slot, whole, 0);
  slot.group->rule->apply(whole);
  label_state(slot);
}

void update_part(ParameterSlot& slot, const Tensor& part, std::int64_t first,
                 double noise_variance) {
  if (first == 0) ++slot.steps;
  const Tensor value = slot.value();
  update_blocks(slot, update_of(slot, value, part, noise_variance), first, part);
}

std::optional<UpdateArray> update_array(ParameterSlot& slot, const Tensor& grad,
                                        double noise_variance) {
  const Tensor value = slot.value();
  if (!slot.group->rule->elementwise() || slot.group->bf16_state || grad.dtype() != value.dtype() ||
      grad.device() != value.device() || !value.is_dense()) {
    return {};
  }
  ++slot.steps;
  const Update whole = update_of(slot, value, grad, noise_variance);
  const auto one = array_of(slot.group->rule->plan(whole).value(), whole);
  if (!one) --slot.steps;
  label_state(slot);
  return one;
}

}  // namespace sotto::nn
