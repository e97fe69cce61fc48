// The gradients that a node's backward computes for its inputs.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/var.h"

namespace sotto {

// Takes the gradients of a node's inputs, which are numbered as they were recorded.
class Adjoint {
 public:
  // True if input i wants a gradient; backward need not compute others.
  bool wants(int i) const;
  // Adds the gradient, in the input's shape, of an input that is batched like the node (or of any
  // input of a shared node).
  void input(int i, const Tensor& dx);
  // The gradient of a shared input of a batched node.
  void shared(int i, const PerSampleGrad& gradient);
  // Adds the gradient of an input of an elementwise op. `full` has the node's shape and is summed
  // over the broadcast axes.
  void broadcast(int i, const Tensor& full);
  // Whether the sums over samples are all that is asked for of gradients of shared inputs.
  bool sums_only() const;
  // How many sample axes the gradient has in front of the node's: 1 or 0. What input() is given has
  // as many in front of the input's.
  int batch_dims() const { return rows_ < 0 ? 0 : 1; }
  // A shape with these axes in front.
  Shape with_batch_dims(const Shape& shape) const;
  // An output buffer shaped like dy: dy itself if no one else references it (it is then
  // overwritten), else a new tensor. Use it for the last result computed from dy.
  Tensor in_place(const Tensor& dy) const;

 private:
  friend class Segment;
  friend class detail::BackwardPass;
  Adjoint(detail::BackwardPass& pass, int node, std::int64_t rows = -1)
      : pass_(pass), node_(node), rows_(rows) {}
  const Var& input_var(int i) const;

  detail::BackwardPass& pass_;
  int node_;
  std::int64_t rows_;  // -1: none
};

}  // namespace sotto
