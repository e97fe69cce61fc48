// Backward's gradients, one summand for each unit of privacy.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "autograd/sink.h"

namespace sotto {

// The same gradients with one summand for each unit: by the grouping or, without one, a sample
// each, the first ones. What remains of captured work is known as that (PerSample::whole).
inline std::vector<PerSample> grouped(std::vector<PerSample> uses, const Grouping* grouping,
                                      std::int64_t units) {
  for (PerSample& use : uses) {
    if (grouping)
      use = use.group(*grouping);
    else if (use.samples() > units)
      use = use.whole() ? PerSample::first_of(use.whole(), units) : use.slice(0, units);
  }
  return uses;
}

// Hands each parameter's gradient on to `take`, which lets nothing out but factors, and sums with
// these.
class UnitSink final : public GradSink {
 public:
  using Take = std::function<void(Parameter& parameter, const std::vector<PerSample>& uses)>;
  UnitSink(const Grouping* grouping, std::int64_t units, Take take)
      : grouping_(grouping), units_(units), take_(std::move(take)) {}
  bool bounds_influence() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    take_(parameter, grouped(std::move(uses), grouping_, units_));
  }

 private:
  const Grouping* grouping_;
  std::int64_t units_;
  Take take_;
};

}  // namespace sotto
