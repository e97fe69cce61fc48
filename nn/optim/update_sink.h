// Sum and update in one: ordinary training with one parameter's gradient at a time.
#pragma once

#include <unordered_set>

#include "autograd/sink.h"
#include "nn/optim/optimizer.h"

namespace sotto::nn {

// Backward's sink for one ordinary step: each parameter moves as soon as its gradient is complete,
// which is let go then, to the same bits as Optimizer::step() after a SumSink. A parameter's
// gradient is complete when backward has passed everything that reads it. One sink is for one
// backward: gradients of several do not add up, and a graph that is kept for another backward
// would see the moved parameters. A private tape does not deliver to it: what is clipped and
// noised is a whole sum, and its release is written to the ledger before any of it is used.
class UpdateSink final : public GradSink {
 public:
  // The optimizer must outlive the sink.
  explicit UpdateSink(Optimizer& optimizer) : optimizer_(optimizer) {}
  // Throws what Optimizer::step() throws, with the parameters before this one updated; and for a
  // second gradient of one parameter.
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool sums_only() const override { return true; }

 private:
  Optimizer& optimizer_;
  std::unordered_set<const Parameter*> updated_;
};

}  // namespace sotto::nn
