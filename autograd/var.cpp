#include "autograd/var.h"

namespace sotto {

Tape& Var::tape() const {
  check(tape_ != nullptr, "Var: not on a tape");
  return *tape_;
}

bool Var::is(const Var& other) const {
  if (tape_ != other.tape_ || index_ != other.index_ || generation_ != other.generation_ ||
      !(samples_ == other.samples_) || value_.shape() != other.value_.shape() ||
      value_.view().data != other.value_.view().data)
    return false;
  // A batch of one sample has any stride along its sample axis.
  for (int i = 0; i < value_.rank(); ++i) {
    if (value_.size(i) > 1 && value_.strides()[i] != other.value_.strides()[i]) return false;
  }
  return true;
}

}  // namespace sotto
