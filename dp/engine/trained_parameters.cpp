#include "dp/engine/trained_parameters.h"

#include <algorithm>
#include <utility>

#include "core/devices.h"
#include "nn/optim/check_finite.h"

namespace sotto {

namespace {

std::string kind_of(const Tensor& value) {
  if (!value.defined()) return "undefined";
  return fmt::format("{} {} on {}", name(value.dtype()), value.shape(), name(value.device()));
}

}  // namespace

TrainedParameters::TrainedParameters(nn::Module& model) {
  for (const auto& [name, p] : model.named_parameters()) {
    if (p->trainable)
      all_.push_back({name, p, p->value.shape(), p->value.dtype(), p->value.device()});
  }
}

bool TrainedParameters::check_same(nn::Module& model) {
  std::vector<Parameter*> present = model.parameters();
  std::ranges::sort(present);
  bool assigned = false;
  for (TrainedParameter& one : all_) {
    check(std::ranges::binary_search(present, one.parameter),
          "Engine: parameter {} was replaced or removed since the engine was made: make another "
          "optimizer and engine",
          one.name);
    const Tensor& value = one.parameter->value;
    const bool same = value.defined() && value.shape() == one.shape && value.dtype() == one.dtype &&
                      value.device() == one.device;
    check(same, "Engine: parameter {} was {} {} on {} when the engine was made, and is {}",
          one.name, name(one.dtype), one.shape, name(one.device), kind_of(value));
    check(one.parameter->trainable,
          "Engine: parameter {} was frozen since the engine was made: make another optimizer and "
          "engine",
          one.name);
    const void* const place = value.view().data;
    if (std::exchange(one.place, place) != place) assigned = true;
  }
  return assigned;
}

void TrainedParameters::check_finite() const {
  std::vector<Tensor> values;
  for (const TrainedParameter& one : all_) values.push_back(one.parameter->value);
  if (nn::all_finite(values)) return;
  for (const TrainedParameter& one : all_)
    check(nn::all_finite({one.parameter->value}),
          "Engine: parameter {} holds NaN or infinity, from which nothing is learned any more: "
          "nothing is released",
          one.name);
}

}  // namespace sotto
