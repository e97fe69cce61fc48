// A value on a tape: a tensor with its position in the recording.
#pragma once

#include "autograd/sample_axis.h"
#include "core/tensor.h"

namespace sotto {

class Tape;
class Adjoint;
namespace detail {
class BackwardPass;
}

// A tensor together with its place on a tape: every operation takes Vars and returns one. Get them
// from Tape::input(), Tape::use() and Tape::constant():
//
//   const Var y = linear(tape.input(x), tape.use(weight));
class Var {
 public:
  Var() = default;
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  int rank() const { return value_.rank(); }
  Dtype dtype() const { return value_.dtype(); }
  // The axis that counts the samples, if any (sample_axis.h).
  SampleAxis samples() const { return samples_; }
  // The tape that the value was recorded on. Throws std::invalid_argument for a default-constructed
  // Var.
  Tape& tape() const;
  // True if backward computes a gradient for the value.
  bool needs_grad() const { return needs_grad_; }
  // True if `other` is the same recorded value, or, without gradients, the same view of one tensor
  // with the same sample axis; not merely an equal tensor.
  bool is(const Var& other) const;

 private:
  friend class Tape;
  friend class Adjoint;
  friend class detail::BackwardPass;
  Tensor value_;
  SampleAxis samples_ = SampleAxis::shared();
  Tape* tape_ = nullptr;
  int index_ = -1;
  std::int64_t generation_ = 0;  // of the tape, which gets a new number when it is emptied
  bool needs_grad_ = false;
};

}  // namespace sotto
