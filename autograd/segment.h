// Activation checkpointing (Griewank and Walther 2000; Chen et al. 2016): a segment of a
// computation is recomputed in backward instead of being stored. The results, per-sample gradients
// included, are those of the computation without segments.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

// The results of `function` on the inputs; the tape keeps only the inputs. Backward recomputes the
// function, with equal public randomness, so that dropout is replayed, and then computes the
// gradients of the inputs and of the parameters used. Segments may be nested. Example: `Var y =
// segment([&](const Var& x) { return block(x); }, x);`
//
// The function gets values of an inner tape. It must not depend on state that changes before
// backward, and the objects it refers to must live until then. Throws std::invalid_argument if
// there is no input, if the function returns or uses a value of another tape (make such values
// inputs), and if only some results are shared by all samples. Backward throws if the recomputation
// differs in shapes, parameters or random draws, and on a private tape if the sums of the results
// differ between two backward passes.
using SegmentFunction = std::function<std::vector<Var>(const std::vector<Var>& inputs)>;
// Runs the function as one node, which keeps its inputs alone.
std::vector<Var> segment(const SegmentFunction& function, const std::vector<Var>& inputs);
// segment() for one input and one result.
Var segment(const std::function<Var(const Var& x)>& function, const Var& x);

}  // namespace sotto
