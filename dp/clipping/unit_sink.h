// Backward's sink for two passes (ghost clipping): it passes each parameter's gradient on at once,
// with one summand per privacy unit, and keeps none.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/parameter_gradients.h"

namespace sotto {

// `take` must not let gradients escape: only clip factors, and sums weighted by them, so that the
// sink bounds each unit's influence.
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
