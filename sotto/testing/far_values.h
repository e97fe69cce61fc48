// Values that uniform draws do not reach: zero, one, and the tails.
#pragma once

#include "sotto/testing/check_op.h"

namespace sotto::testing {

// Puts a special value and a far one, one after the other, into an element of each
// floating-point argument of an instance made by with_loss(). Where the loss has a limit there, it
// must be the loss; where it has a slope, the gradient must be it, and at a kink finite; and single
// precision must agree with double as far as its range goes. Where the loss has neither (a pole, a
// jump, outside of the domain), nothing is asked. Throws std::invalid_argument.
void check_far(const Instance& instance, PublicRandom& random);

}  // namespace sotto::testing
