// The laws that every differentiable function must satisfy, for tests of one's own operations and
// layers: a gradient is the derivative of its value, and a per-sample gradient depends on one
// sample only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random/philox.h"

namespace sotto::testing {

// An argument in f64 (or i64), batched along an axis or shared. A shared argument becomes a
// parameter if it needs a gradient, else a constant.
struct OpInput {
  Tensor value = {};                          // f64 or i64
  SampleAxis samples = SampleAxis::shared();  // batched along an axis, or shared
  bool wants_grad = true;                     // has a gradient to check
  // True if check_far() puts far values into this argument. Set it to false if they make arithmetic
  // useless (weights of a recurrence) or are not valid (probabilities).
  bool far = true;
};

// A function of tape values, with one set of arguments.
struct Instance {
  std::vector<OpInput> inputs = {};  // the arguments
  // Computes the result from the arguments, in their order.
  std::function<Var(const std::vector<Var>&)> run = {};
  // Parameters that the function uses besides its arguments.
  std::vector<Parameter*> parameters = {};
};

// A function, with a generator of random instances. It must be smooth at the generated arguments,
// or difference quotients do not match, and the samples of an instance must be independent. Some
// instances need two or more samples, so that mixing of samples is detected.
struct OpCase {
  std::string op = {};                               // its registered name
  std::string what = {};                             // a description of this use
  std::function<Instance(PublicRandom&)> make = {};  // makes one of random values and sizes
};

struct CheckOptions {
  int instances = 24;         // random instances to check
  std::uint64_t seed = 2024;  // of the instances
  // True if a sample run alone must give bit-equal results. Set it to false on a GPU, where a
  // library's algorithm depends on the number of samples.
  bool exact = true;
};

// Checks these laws on random instances:
// - each gradient, of arguments and parameters, is the derivative of the value;
// - a sample's output and gradients equal those of running it alone, with `exact` to the last bit;
// - if one argument is batched and all others are shared, the result is batched, or the function
//   refuses: an argument with rows that is read beside shared ones alone would count as public;
// - a batch without samples works, with sums of zero;
// - the other samples' values, NaN and infinity included, change no bit of a sample's results;
// - sums and products of per-sample gradients equal those of the materialized ones, by every
//   NormMethod;
// - f32 agrees with f64;
// - at 0, 1, -1 and far values up to 90, one element of an argument at a time, value and gradient
//   have no gaps, and f32 agrees with f64 within its range. Poles and jumps are exempt.
// If the function also takes shared arguments, each instance runs a second time with all of them as
// parameters, so that the gradients of many samples pass through its backward (Op::batchable).
//
// Throws std::invalid_argument, naming the violated law and the instance; and if no instance has
// two samples. Example: `check_op({.op = "scale", .what = "by 2", .make = make_instance});`
void check_op(const OpCase& op, const CheckOptions& options = {});

// Uniformly distributed values in [low, high), f64.
Tensor uniform_values(PublicRandom& random, const Shape& shape, double low = -2, double high = 2);

}  // namespace sotto::testing
