// Values that uniform draws do not reach: zero, one, and the tails.
#pragma once

#include "autograd/check/check_op.h"

namespace sotto::testing {

// Puts a special value and a far one, one after the other, into an element of each
// floating-point argument of an instance made by with_loss(). The loss must equal its limit there,
// where it has one; the gradient must equal the loss's slope, where it has one, and be finite at a
// kink; single precision must agree with double as far as its range goes. Nothing is asked where
// the loss has neither (a pole, a jump, outside of the domain). Throws std::invalid_argument.
void check_far(const Instance& instance, PublicRandom& random);

}  // namespace sotto::testing
