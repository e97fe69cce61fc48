// Checks values that uniform samples do not reach: zero, one, and the tails.
#pragma once

#include "autograd/check/check_op.h"
#include "core/random/philox.h"

namespace sotto::testing {

// Puts a special value and then a far one into an element of each floating-point argument of an
// instance made by with_loss(). The loss must equal its limit there; the gradient must equal the
// loss's slope, and be finite at a kink; f32 must agree with f64 within its range. Points without a
// limit or slope (a pole, a jump, outside of the domain) are exempt. Throws std::invalid_argument.
void check_far(const Instance& instance, PublicRandom& random);

}  // namespace sotto::testing
