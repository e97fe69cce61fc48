// One backward pass: a walk over a tape from its end, which computes the gradients (cotangents) of
// its values and delivers those of parameters. For the sources of this folder.
#pragma once

#include <utility>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "autograd/tape_node.h"

namespace sotto::detail {

// The gradient of a value, collected until the pass visits the value's node.
struct Cotangent {
  Tensor value;  // of batched and mixed values, and of shared ones during pull-back
  std::vector<PerSampleGrad> uses;  // of shared values
  Tensor sum;                       // over uses and samples, if the sink needs only sums
  // Adds a use of a shared value. Rows, written out or derived, are kept as the sum over uses.
  void add_use(const PerSampleGrad& use);
  // Returns all uses of a shared value, or `sum` as a single use.
  std::vector<PerSampleGrad> take_uses();
};

class BackwardPass {
 public:
  BackwardPass(std::vector<TapeNode>& nodes, std::int64_t sample_count, GradSink& sink);

  // Sets the gradient of a value that the pass starts from. That of a shared value has a sample
  // axis in front.
  void start(const Var& y, const Tensor& dy);
  // Visits all nodes from the last to the first. With `drop` each is removed after its visit.
  void run(bool drop);
  // Returns the gradients of inputs made with wants_grad, each with the index of its node.
  std::vector<std::pair<int, Tensor>> take_grads() { return std::exchange(grads_, {}); }

  // The parts that adjoints read and add to.
  const TapeNode& node(int index) const { return nodes_[static_cast<std::size_t>(index)]; }
  Cotangent& cotangent(int index) { return cotangents_[static_cast<std::size_t>(index)]; }
  Cotangent& cotangent(const Var& x) { return cotangent(x.index_); }
  std::int64_t sample_count() const { return sample_count_; }
  bool sums_only() const { return sink_.sums_only(); }
  GradSink& sink() const { return sink_; }
  // Delivers a parameter's gradient to the sink now. No node before index `node` may add to it.
  void deliver(Parameter& parameter, int node);

 private:
  void visit(int index);
  // Passes the per-sample gradients of a shared value on to the parameters it was computed from.
  void pull_back(int index);
  bool pull_derived(int index, const std::vector<PerSampleGrad>& uses);
  std::vector<char> derived_inputs(int index, const std::vector<PerSampleGrad>& uses) const;
  bool is_of_parameter(const Var& x) const;
  std::vector<TapeNode> with_leaves(int index) const;
  // The gradients [n, ...shape] of the inputs of a node that all samples share, given those of its
  // value; undefined for inputs that get none.
  std::vector<Tensor> pulled(int index, Tensor rows);
  std::vector<Tensor> pulled_one_by_one(int index, const Tensor& rows);
  void take_values(const TapeNode& node, std::vector<Tensor>& gradients);

  std::vector<TapeNode>& nodes_;
  std::int64_t sample_count_;
  GradSink& sink_;
  std::vector<Cotangent> cotangents_;
  std::vector<std::pair<int, Tensor>> grads_;
  std::size_t first_bytes_;  // in use on the CPU when the pass began
};

// True if the node's backward takes gradients with further columns of zeros (padded_columns.h).
bool takes_padding(const TapeNode& node);

// Adds `part` to `total`: in place if there is no other reference to `total`, else into a new
// tensor. The first part becomes the total without a copy.
void add_to(Tensor& total, const Tensor& part);

}  // namespace sotto::detail
