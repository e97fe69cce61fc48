// One walk over a tape from its end: cotangents of its values, and the gradients that reach
// parameters and inputs. For the sources of this folder.
#pragma once

#include <utility>
#include <vector>

#include "autograd/sink.h"
#include "autograd/tape_node.h"

namespace sotto::detail {

class BackwardPass {
 public:
  BackwardPass(std::vector<TapeNode>& nodes, std::int64_t sample_count, GradSink& sink);

  // The gradient of a value to begin from; of a shared value with a sample axis in front.
  void start(const Var& y, const Tensor& dy);
  // Visits the nodes from the last to the first; with `drop` each is removed after its visit.
  void run(bool drop);
  // The gradients of inputs that want one, each with the number of its node.
  std::vector<std::pair<int, Tensor>> take_grads() { return std::exchange(grads_, {}); }

  GradSink& sink() const { return sink_; }
  // Hands the sink a parameter's gradient now, which no node before `node` adds to.
  void deliver(Parameter& parameter, int node);

 private:
  friend class sotto::Adjoint;
  struct Cotangent {
    Tensor value;  // of batched and mixed values, and of shared ones during pull-back
    std::vector<PerSampleGrad> uses;  // of shared values
    Tensor sum;                       // over uses and samples, where the sink wants no more
    // All uses of a shared value, or the sum as one.
    std::vector<PerSampleGrad> take_uses();
  };

  TapeNode& node(int index) { return nodes_[static_cast<std::size_t>(index)]; }
  Cotangent& cotangent(int index) { return cotangents_[static_cast<std::size_t>(index)]; }
  Cotangent& cotangent(const Var& x) { return cotangent(x.index_); }
  void visit(int index);
  // A shared value computed from parameters hands its per-sample gradients on to these.
  void pull_back(int index);
  Tensor materialized_sum(const std::vector<PerSampleGrad>& uses) const;
  void pull_together(const TapeNode& node, int index, const Tensor& gradients);
  void pull_each(const TapeNode& node, int index, const Tensor& gradients);

  std::vector<TapeNode>& nodes_;
  std::int64_t sample_count_;
  GradSink& sink_;
  bool sums_only_;
  std::vector<Cotangent> cotangents_;
  std::vector<std::pair<int, Tensor>> grads_;
};

// Adds in place where the total is nobody else's tensor, as the first part may be.
void add_to(Tensor& total, const Tensor& part);

}  // namespace sotto::detail
