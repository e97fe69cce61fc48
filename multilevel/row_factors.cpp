#include "multilevel/row_factors.h"

namespace sotto::multilevel {

void RowFactors::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  for (PerSampleGrad& use : uses) {
    use = use.smallest_form();
    use.count_as_kept();
  }
  factors_.emplace_back(&parameter, std::move(uses));
}

Tensor RowFactors::products(const Gradients& v) const {
  DirectionSink sink(v);
  for (const auto& [parameter, uses] : factors_) sink.receive(*parameter, uses);
  return sink.products();
}

void RowFactors::add_sum(const Tensor& weights, Gradients& total) const {
  for (const auto& [parameter, uses] : factors_) {
    for (const PerSampleGrad& use : uses) accumulate(total, *parameter, use.sum(weights));
  }
}

}  // namespace sotto::multilevel
