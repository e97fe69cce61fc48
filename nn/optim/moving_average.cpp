#include "nn/optim/moving_average.h"

#include <algorithm>
#include <cmath>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/state.h"

namespace sotto::nn {

namespace {

const std::string prefix = "average.";

// The weight of the t-th value in the average.
double newest_weight(double decay, AverageStart start, std::int64_t updates) {
  constexpr double warmup_steps = 9;  // as in TensorFlow, which counts updates from 0: (1+t)/(10+t)
  const auto t = static_cast<double>(updates);
  if (updates == 1) return 1;
  if (start == AverageStart::warmup) return 1 - std::min(decay, t / (warmup_steps + t));
  return (1 - decay) / (1 - std::pow(decay, t));
}

}  // namespace

MovingAverage::MovingAverage(Module& module, double decay, AverageStart start)
    : parameters_(module.named_parameters()), decay_(decay), start_(start) {
  check(decay >= 0 && decay < 1, "moving average: decay {} outside [0, 1)", decay);
  for (const auto& [name, parameter] : parameters_) {
    const Dtype dtype = parameter->value.dtype();
    check(dtype == Dtype::f32 || dtype == Dtype::f64, "moving average: {} is {}, not f32 or f64",
          name, sotto::name(dtype));
  }
}

void MovingAverage::update() {
  check(!exchanged_, "moving average: update while a Scope has put the averages into the module");
  if (updates_ == 0) {
    for (const auto& [name, parameter] : parameters_) averages_.push_back(clone(parameter->value));
  }
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const Tensor& value = parameter->value;
    check(value.shape() == averages_[i].shape() && value.dtype() == averages_[i].dtype(),
          "moving average: {} is now {} {}", name, sotto::name(value.dtype()), value.shape());
  }
  const double weight = newest_weight(decay_, start_, ++updates_);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    axpby(weight, parameters_[i].second->value, 1 - weight, averages_[i]);
  }
}

void MovingAverage::copy_to(Module& module) const {
  check(updates_ > 0 && !exchanged_, "moving average: {}",
        exchanged_ ? "the module has the averages" : "no update yet");
  std::map<std::string, Tensor> tensors;
  for (std::size_t i = 0; i < averages_.size(); ++i) tensors[parameters_[i].first] = averages_[i];
  set_parameters(module, tensors, "moving average");
}

void MovingAverage::exchange() {
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    std::swap(parameters_[i].second->value, averages_[i]);
  }
  exchanged_ = !exchanged_;
}

MovingAverage::Scope::Scope(MovingAverage& average) : average_(average) {
  check(average.updates_ > 0 && !average.exchanged_, "moving average: {}",
        average.exchanged_ ? "the module has the averages" : "no update yet");
  average_.exchange();
}

MovingAverage::Scope::~Scope() { average_.exchange(); }

std::map<std::string, Tensor> MovingAverage::state() const {
  check(!exchanged_, "moving average: the module has the averages");
  std::map<std::string, Tensor> state;
  state["updates"] = Tensor::from(std::vector<std::int64_t>{updates_}, {});
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    state[prefix + parameters_[i].first] = clone(averages_[i]);
  }
  return state;
}

void MovingAverage::load_state(const std::map<std::string, Tensor>& state) {
  check(!exchanged_, "moving average: the module has the averages");
  const auto updates = state.find("updates");
  check(updates != state.end() && updates->second.dtype() == Dtype::i64 &&
            updates->second.rank() == 0,
        "moving average: the state has no updates, or not as a single i64");
  const std::int64_t count = updates->second.to_vector<std::int64_t>()[0];
  check(count >= 0, "moving average: updates is {}", count);
  std::vector<Tensor> averages;
  for (const auto& [name, parameter] : parameters_) {
    if (count == 0) break;
    const auto at = state.find(prefix + name);
    check(at != state.end(), "moving average: the state has no {}{}", prefix, name);
    const Tensor& value = parameter->value;
    check(at->second.shape() == value.shape() && at->second.dtype() == value.dtype(),
          "moving average: {}{} is {} {} where {} {} is needed", prefix, name,
          sotto::name(at->second.dtype()), at->second.shape(), sotto::name(value.dtype()),
          value.shape());
    averages.push_back(empty_like(value));
    copy_into(at->second, averages.back());
  }
  check(state.size() == averages.size() + 1,
        "moving average: {} entries in the state where {} are needed", state.size(),
        averages.size() + 1);
  averages_ = std::move(averages);
  updates_ = count;
}

}  // namespace sotto::nn
