#include "autograd/sink.h"

#include <algorithm>

#include "autograd/memory_labels.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

void accumulate(Gradients& gradients, Parameter& parameter, const Tensor& value) {
  for (auto& [known, total] : gradients) {
    if (known == &parameter) return axpby(1, value, 1, total);
  }
  gradients.emplace_back(&parameter, value);
}

void SumSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  for (const PerSampleGrad& use : uses) {
    const Tensor sum = use.sum();
    label_for(parameter, MemoryKind::gradient, sum);
    accumulate(gradients_, parameter, sum);
  }
}

void PerSampleGradSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  // A materialized gradient returns its own tensor, which accumulate() must not write to.
  const LabelScope scope = LabelScope::kind(MemoryKind::per_sample_grad);
  for (const PerSampleGrad& use : uses) accumulate(rows_, parameter, clone(use.materialize()));
}

const Tensor& PerSampleGradSink::rows(const Parameter& parameter) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const auto& entry) { return entry.first == &parameter; });
  check(found != rows_.end(), "PerSampleGradSink: no gradient for this parameter of shape {}",
        parameter.value.shape());
  return found->second;
}

Tensor PerSampleGradSink::squared_norms() const {
  check(!rows_.empty(), "PerSampleGradSink: no gradients");
  Tensor total = zeros({rows_[0].second.size(0)}, Dtype::f64);
  for (const auto& [parameter, rows] : rows_)
    axpby(1, squared_norm({PerSampleGrad::materialized(rows)}), 1, total);
  return total;
}

void DirectionSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  const auto found = std::find_if(direction_.begin(), direction_.end(),
                                  [&](const auto& entry) { return entry.first == &parameter; });
  if (found == direction_.end()) return;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = dot(use, found->second);
    if (products_.defined())
      axpby(1, part, 1, products_);
    else
      products_ = part;
  }
}

}  // namespace sotto
