// The laws by which this library tests its own operations and layers, for those of its users: a
// gradient is the derivative of its value, and what a private sum bounds belongs to one sample.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random/philox.h"

namespace sotto::testing {

// An argument in f64 (or i64): batched along an axis, or shared. A shared one that wants a gradient
// is given to the function as a parameter, one that does not as a constant.
struct OpInput {
  Tensor value = {};
  SampleAxis samples = SampleAxis::shared();
  bool wants_grad = true;
  // True where values far from those drawn are tried in this argument, one at a time. Set it to
  // false where they make arithmetic useless (weights of a recurrence), or where the argument is no
  // free choice (probabilities).
  bool far = true;
};

// One set of arguments of a function of tape values, and the function.
struct Instance {
  std::vector<OpInput> inputs = {};
  std::function<Var(const std::vector<Var>&)> run = {};
  // What the function uses besides its arguments.
  std::vector<Parameter*> parameters = {};
};

// A function with random instances of it. Smooth at what `make` draws, or no difference quotient
// agrees; all samples of an instance independent of one another. Some instances have two samples or
// more, or nothing would be seen of what mixes them.
struct OpCase {
  std::string op = {};    // as registered
  std::string what = {};  // which of its uses
  std::function<Instance(PublicRandom&)> make = {};
};

struct CheckOptions {
  int instances = 24;
  std::uint64_t seed = 2024;
  // Whether a sample alone must give exactly the same: what a library does on a GPU depends on how
  // many there are.
  bool exact = true;
};

// Holds a function to these laws, on random instances:
// - each gradient, of arguments and parameters, is the derivative of the value;
// - the output and gradients of a sample are those of running it alone, with `exact` to the
//   last digit, where samples are the first axis of all arguments;
// - a batch without samples passes, with sums of zero;
// - what other samples hold, NaN and infinity included, changes no bit of a sample's;
// - a per-sample gradient's sums and products are those of its rows, by every route;
// - single precision agrees with double;
// - at 0, 1, -1 and far from what was drawn, to 90 and -90, each in one element of an argument:
//   value and gradient have no gaps, and single precision agrees as far as its range goes. Where
//   the function has no limit or slope, as at poles and jumps, nothing is asked there.
// Where it also takes shared arguments, each instance is run a second time with all of them
// parameters: then gradients of many samples pass its backward (Op::Batchable).
// Throws std::invalid_argument naming the law that does not hold, and where; and where no instance
// has two samples.
void check_op(const OpCase& op, const CheckOptions& options = {});

// Uniform in [low, high), f64.
Tensor uniform_values(PublicRandom& random, const Shape& shape, double low = -2, double high = 2);

}  // namespace sotto::testing
