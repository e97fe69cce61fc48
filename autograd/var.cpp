#include "autograd/var.h"

namespace sotto {

Tape& Var::tape() const {
  check(tape_ != nullptr, "Var: not on a tape");
  return *tape_;
}

}  // namespace sotto
