// Gradient sums and updates in one pass: ordinary training that holds one parameter's gradient at a
// time.
#pragma once

#include <unordered_set>

#include "autograd/sink.h"

namespace sotto::nn {

class Optimizer;

// The sink of one ordinary (not private) backward. Each parameter is updated, with the same bits as
// by Optimizer::step() after a SumSink, as soon as backward has passed every node that reads it;
// then its gradient is freed. A sink serves one backward: gradients of several are not accumulated,
// and a graph retained for another backward would see updated parameters. Private tapes refuse this
// sink: clipping and noise need the whole sum, and the ledger records a release before any of it is
// used.
//
//   UpdateSink sink(optimizer);
//   tape.backward(loss, sink);
class UpdateSink final : public GradSink {
 public:
  // The optimizer must outlive the sink.
  explicit UpdateSink(Optimizer& optimizer) : optimizer_(optimizer) {}
  // Throws as Optimizer::step() does, but after updates of earlier parameters; throws for a second
  // gradient of one parameter.
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  bool sums_only() const override { return true; }

 private:
  Optimizer& optimizer_;
  std::unordered_set<const Parameter*> updated_;
};

}  // namespace sotto::nn
