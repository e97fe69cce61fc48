// Segments of a computation that are run again in backward instead of being kept (activation
// checkpointing: Griewank and Walther 2000; Chen et al. 2016). What is computed, per-sample
// gradients included, is what it would be without them.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

// The results of `function` on the inputs, of which the tape keeps the inputs alone: backward runs
// the function a second time, with the same public randomness, so that dropout is replayed, and
// then hands on the gradients of the inputs and of the parameters used. Segments may hold segments.
// The function is called with values of a tape of its own, must depend on nothing else that changes
// until backward, and what it refers to must live as long. Throws std::invalid_argument when there
// is no input, when the function returns or meets a value of another tape (those are to be inputs),
// and when of several results some are shared by all samples and others not; backward throws when
// the second run differs from the first in its shapes, parameters or use of randomness, and on a
// private tape when two backward passes see results whose sums differ.
using SegmentFunction = std::function<std::vector<Var>(const std::vector<Var>& inputs)>;
std::vector<Var> segment(const SegmentFunction& function, const std::vector<Var>& inputs);
// The same of one value.
Var segment(const std::function<Var(const Var& x)>& function, const Var& x);

}  // namespace sotto
