// Rules by which ops propagate the sample axis, and the order [sample, position, ...] of factors.
#pragma once

#include "autograd/op.h"
#include "autograd/tape.h"

namespace sotto {

// The sample axis of an elementwise result of shape `y`. Inputs are aligned at the right; batched
// ones must agree on the axis, and shared ones must have size 1 along it. Otherwise the op mixes
// samples.
SampleAxis broadcast_samples(const Op& op, const std::vector<Var>& inputs, const Shape& y);

// The sample axis of an op that works along the axes `touched` of x and drops none: x's own, unless
// it is touched, which mixes samples. `op` and `advice` are used in the error of a private tape.
SampleAxis preserve_sample_axis(const char* op, const Var& x, const Shape& touched,
                                const char* advice = nullptr);
inline SampleAxis preserve_sample_axis(const Op& op, const Var& x, const Shape& touched,
                                       const char* advice = nullptr) {
  return preserve_sample_axis(op.name, x, touched, advice);
}

// The sample axis after reshaping to `shape`: the axis of equal size with equally many elements
// before it. If the axis was merged or split, the op mixes samples.
SampleAxis reshaped_samples(const Op& op, const Var& x, const Shape& shape);

// A value without gradient that has the sample axis `samples`.
Var untracked(Tape& tape, const Tensor& value, SampleAxis samples);

// x as [samples, positions, ...last `features` axes merged], with the sample axis first; one sample
// if the value is shared or mixed.
Tensor by_sample(const Tensor& x, SampleAxis samples, int features);

}  // namespace sotto
