// Numbers of each sample, computed from its gradient, as values on its private tape: what weights
// of samples are computed from. They are secret as the samples are.
#pragma once

#include "autograd/tape.h"
#include "dp/clipping/clip_groups.h"
#include "dp/clipping/clip_rule.h"

namespace sotto {

// <g_n, v>, [n]: the product of the gradient of each sample's loss, over all parameters, with a
// direction v that is public or was released; parameters without a direction add nothing. Runs
// backward, and the tape stays complete. Each is a function of its own sample alone if v is known;
// of v computed from private samples nothing is guaranteed.
//
//   const Var losses = cross_entropy(model(tape.input(x)), labels);
//   tape.set_sample_weights(greater(gradient_products(losses, v), 0 * detach(losses)));
Var gradient_products(const Var& losses, const Gradients& v);

// min(1, bound / |g_n|) or what the rule says, [n]: the clip factor of each sample's gradient over
// the parameters of the group. Runs backward, and the tape stays complete.
Var clip_factors(const Var& losses, const ClipGroup& group, const ClipRule& rule = {});

}  // namespace sotto
