// The state of a level, as named tensors.
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/level.h"

namespace sotto::multilevel {

namespace {

const Tensor& entry(const NamedTensors& state, std::string_view name) {
  const auto found = state.find(std::string(name));
  check(found != state.end(), "multilevel: the state has no {}", name);
  return found->second;
}

// A tensor of the state for a parameter, checked against its value.
const Tensor& entry_like(const NamedTensors& state, std::string_view name, const Tensor& value) {
  const Tensor& saved = entry(state, name);
  check(saved.shape() == value.shape() && saved.dtype() == value.dtype(),
        "multilevel: {} is {} {} where {} {} is needed", name, sotto::name(saved.dtype()),
        saved.shape(), sotto::name(value.dtype()), value.shape());
  return saved;
}

NamedTensors below(const NamedTensors& state, const std::string& prefix) {
  NamedTensors part;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
  }
  return part;
}

void add_below(NamedTensors& state, const std::string& prefix, const NamedTensors& part) {
  for (const auto& [name, tensor] : part) state.emplace(prefix + name, tensor);
}

// A copy on the value's device.
Tensor copy_like(const Tensor& value, const Tensor& saved) {
  const Tensor copy = empty_like(value);
  copy_into(saved.to(value.device()), copy);
  return copy;
}

std::vector<std::int64_t> numbers(const NamedTensors& state, const std::string& name,
                                  std::size_t count) {
  const Tensor& saved = entry(state, name);
  check(saved.dtype() == Dtype::i64 && saved.shape() == Shape{static_cast<std::int64_t>(count)},
        "multilevel: {} is {} {} where {} i64 are needed", name, sotto::name(saved.dtype()),
        saved.shape(), count);
  return saved.to_vector<std::int64_t>();
}

}  // namespace

NamedTensors Level::state() const {
  NamedTensors state{
      {"counters", Tensor::from(std::vector<std::int64_t>{steps_, updates_, pending_, overflowed_,
                                                          kept_ ? kept_->updates : -1,
                                                          accumulation_.loss_scale().good_steps()},
                                {6})},
      {"loss", Tensor::from({mean_loss_, loss_scale()}, {2}, Dtype::f64)}};
  add_below(state, "optimizer/", optimizer_state());
  for (const auto& [name, parameter] : named_)
    state.emplace("variables/" + name, clone(parameter->value));
  for (const auto& [parameter, value] : sum_)
    state.emplace("sum/" + name_of(parameter), clone(value));
  for (const auto& [parameter, value] : last_gradient_)
    state.emplace("last_gradient/" + name_of(parameter), clone(value));
  if (!kept_) return state;
  add_below(state, "kept/optimizer/", kept_->optimizer);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    state.emplace("kept/variables/" + name_of(parameters_[i]), kept_->values[i]);
  return state;
}

Gradients Level::named_gradients(const NamedTensors& state, const std::string& prefix) const {
  Gradients gradients;
  if (below(state, prefix).empty()) return gradients;
  for (Parameter* parameter : parameters_) {
    const Tensor& saved = entry_like(state, prefix + name_of(parameter), parameter->value);
    gradients.emplace_back(parameter, copy_like(parameter->value, saved));
  }
  return gradients;
}

void Level::load_state(const NamedTensors& state) {
  const auto counters = numbers(state, "counters", 6);
  for (const auto& [name, parameter] : named_)
    entry_like(state, "variables/" + name, parameter->value);
  Gradients sum = named_gradients(state, "sum/");
  Gradients last_gradient = named_gradients(state, "last_gradient/");
  const Gradients kept_values = named_gradients(state, "kept/variables/");
  const Tensor& loss = entry(state, "loss");
  check(loss.dtype() == Dtype::f64 && loss.shape() == Shape{2}, "multilevel: loss is {} {}",
        sotto::name(loss.dtype()), loss.shape());
  accumulation_.resume_loss_scale(loss.at({1}), counters[5]);
  problem_.optimizer.load_state(below(state, "optimizer/"), named_);
  for (const auto& [name, parameter] : named_)
    copy_into(state.at("variables/" + name).to(parameter->value.device()), parameter->value);
  steps_ = counters[0];
  updates_ = counters[1];
  pending_ = counters[2];
  overflowed_ = counters[3] != 0;
  mean_loss_ = loss.at({0});
  sum_ = std::move(sum);
  last_gradient_ = std::move(last_gradient);
  if (steps_ > 0) rows_ = problem_.batches(steps_ - 1);
  kept_.reset();
  if (kept_values.empty()) return;
  kept_ = {.optimizer = below(state, "kept/optimizer/"), .updates = counters[4]};
  for (const auto& [parameter, value] : kept_values) kept_->values.push_back(value);
}

}  // namespace sotto::multilevel
