// The gradients that a node's backward computes for its inputs.
#pragma once

#include "autograd/var.h"

namespace sotto {

class PerSampleGrad;

// Receives the gradients of a node's inputs from the op's backward. Inputs are numbered from 0, in
// the order in which they were passed to Tape::record():
//
//   [x](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, mul(dy, x)); }
class Adjoint {
 public:
  // True if input i needs a gradient; backward need not compute the gradients of other inputs.
  bool wants(int i) const;
  // Adds the gradient of input i: an input that is batched like the node, or any input of a shared
  // or mixed node. `dx` has the input's shape, after batch_dims() leading axes; it may have the
  // further columns of zeros of a padded value (autograd/ops/padded_columns.h). Throws
  // std::invalid_argument for another shape, and for a shared input of a batched node.
  void input(int i, const Tensor& dx);
  // Adds the per-sample gradient of a shared input, such as a parameter, of a batched node. Throws
  // std::invalid_argument for another shape, and, unless only sums are needed, where it has neither
  // as many samples as the tape nor as many as the node's value has rows along its sample axis.
  void shared(int i, const PerSampleGrad& gradient);
  // Adds the gradient of an input of an elementwise op. `full` has the node's shape and is summed
  // over the axes along which the input was broadcast.
  void broadcast(int i, const Tensor& full);
  // True if only the sums over samples of shared inputs' gradients are needed
  // (GradSink::sums_only).
  bool sums_only() const;
  // The number of sample axes, 0 or 1, that dy has in front of the node's own axes. The gradient
  // passed to input() must have that many in front of the input's axes.
  int batch_dims() const { return rows_ < 0 ? 0 : 1; }
  // The shape with batch_dims() sample axes in front.
  Shape with_batch_dims(const Shape& shape) const;
  // An output buffer shaped like dy: dy itself if there is no other reference to it (it will then
  // be overwritten), else a new tensor. Use it for the last result computed from dy.
  Tensor in_place(const Tensor& dy) const;

 private:
  friend class Segment;
  friend class detail::BackwardPass;
  Adjoint(detail::BackwardPass& pass, int node, std::int64_t rows = -1)
      : pass_(pass), node_(node), rows_(rows) {}

  detail::BackwardPass& pass_;
  int node_;
  std::int64_t rows_;  // -1: none
};

}  // namespace sotto
