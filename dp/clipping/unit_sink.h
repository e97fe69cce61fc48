// Backward's gradients, one summand for each unit of privacy.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "autograd/sink.h"

namespace sotto {

// The same gradients with one summand for each unit: by the grouping or, without one, a sample
// each, the first ones. What remains of captured work is known as that (PerSampleGrad::whole).
inline std::vector<PerSampleGrad> grouped(std::vector<PerSampleGrad> uses, const Grouping* grouping,
                                          std::int64_t units) {
  for (PerSampleGrad& use : uses) {
    if (grouping)
      use = use.group(*grouping);
    else if (use.samples() > units)
      use = use.captured() ? PerSampleGrad::captured_prefix(use.captured(), units)
                           : use.slice(0, units);
  }
  return uses;
}

// Hands each parameter's gradient on to `take`, which lets nothing out but factors, and sums with
// these.
class UnitSink final : public GradSink {
 public:
  using Take = std::function<void(Parameter& parameter, const std::vector<PerSampleGrad>& uses)>;
  UnitSink(const Grouping* grouping, std::int64_t units, Take take)
      : grouping_(grouping), units_(units), take_(std::move(take)) {}
  bool bounds_influence() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    take_(parameter, grouped(std::move(uses), grouping_, units_));
  }

 private:
  const Grouping* grouping_;
  std::int64_t units_;
  Take take_;
};

}  // namespace sotto
