// Backward's gradients, one summand for each unit of privacy.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sotto/autograd/sink.h"

namespace sotto {

// The same gradients with one summand for each unit; without a grouping each sample is one.
inline std::vector<PerSample> grouped(std::vector<PerSample> uses, const Grouping* grouping) {
  if (!grouping) return uses;
  for (PerSample& use : uses) use = use.group(*grouping);
  return uses;
}

// Hands each parameter's gradient on to `take`, which lets nothing out but factors, and sums with
// these.
class UnitSink final : public GradSink {
 public:
  using Take = std::function<void(Parameter& parameter, const std::vector<PerSample>& uses)>;
  UnitSink(const Grouping* grouping, Take take) : grouping_(grouping), take_(std::move(take)) {}
  bool bounds_influence() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    take_(parameter, grouped(std::move(uses), grouping_));
  }

 private:
  const Grouping* grouping_;
  Take take_;
};

}  // namespace sotto
