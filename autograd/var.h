// A value on a tape, or a constant, which is on none.
#pragma once

#include "autograd/sample_axis.h"
#include "core/tensor.h"

namespace sotto {

class Tape;
class Adjoint;
namespace detail {
class BackwardPass;
}

class Var {
 public:
  Var() = default;
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  int rank() const { return value_.rank(); }
  Dtype dtype() const { return value_.dtype(); }
  SampleAxis samples() const { return samples_; }
  // The tape it was recorded on. Throws std::invalid_argument for a default-constructed Var.
  Tape& tape() const;
  // Whether a gradient flows into it.
  bool needs_grad() const { return needs_grad_; }
  // True if `other` is this recorded value, not merely an equal one.
  bool is(const Var& other) const {
    return tape_ == other.tape_ && index_ == other.index_ && generation_ == other.generation_ &&
           value_.view().data == other.value_.view().data && value_.shape() == other.value_.shape();
  }

 private:
  friend class Tape;
  friend class Adjoint;
  friend class detail::BackwardPass;
  Tensor value_;
  SampleAxis samples_ = SampleAxis::shared();
  Tape* tape_ = nullptr;
  int index_ = -1;
  std::int64_t generation_ = 0;  // of the tape: another one whenever it was emptied
  bool needs_grad_ = false;
};

}  // namespace sotto
