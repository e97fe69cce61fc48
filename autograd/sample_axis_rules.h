// How ops move the sample axis, and how factors are brought into the order [sample, position, ...].
#pragma once

#include "autograd/tape.h"

namespace sotto {

// The sample axis of an elementwise result of shape `y`: inputs are aligned at the right, batched
// ones must agree, and shared ones may not vary along it. Otherwise the op mixes samples.
SampleAxis broadcast_samples(const Op& op, const std::vector<Var>& inputs, const Shape& y);

// The sample axis of an op that works along `touched` axes of x and drops none: x's own, unless it
// is touched.
// `op` is the name that a refusal tells, `advice` what it says to do instead.
SampleAxis preserve_sample_axis(const char* op, const Var& x, const Shape& touched,
                                const char* advice = nullptr);
inline SampleAxis preserve_sample_axis(const Op& op, const Var& x, const Shape& touched,
                                       const char* advice = nullptr) {
  return preserve_sample_axis(op.name, x, touched, advice);
}

// The sample axis after reshaping to `shape`: the axis of the same size with as many elements
// before it. The op mixes samples when the axis was joined or split.
SampleAxis reshaped_samples(const Op& op, const Var& x, const Shape& shape);

// A value without gradient whose samples lie along `samples`.
Var untracked(Tape& tape, const Tensor& value, SampleAxis samples);

// x as [samples, positions, ...last `features` axes joined]: the sample axis first; one sample when
// the value is shared or mixed.
Tensor by_sample(const Tensor& x, SampleAxis samples, int features);

}  // namespace sotto
