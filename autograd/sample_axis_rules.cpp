#include "autograd/sample_axis_rules.h"

#include "autograd/op.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

int SampleAxis::axis() const {
  check(batched(), "sample axis: a {} value has none", is_shared() ? "shared" : "mixed");
  return axis_;
}

SampleAxis broadcast_samples(const Op& op, const std::vector<Var>& inputs, const Shape& y) {
  int axis = -1;
  for (const Var& x : inputs) {
    if (x.samples().is_mixed()) return SampleAxis::mixed();
    if (!x.samples().batched()) continue;
    const int aligned = x.samples().axis() + y.rank() - x.rank();
    if (axis >= 0 && aligned != axis) return x.tape().mix(op.name, x);
    axis = aligned;
  }
  if (axis < 0) return SampleAxis::shared();
  for (const Var& x : inputs) {
    const int own = axis - (y.rank() - x.rank());
    if (x.samples().is_shared() && own >= 0 && x.shape()[own] != 1) return x.tape().mix(op.name, x);
  }
  return axis;
}

SampleAxis preserve_sample_axis(const char* op, const Var& x, const Shape& touched,
                                const char* advice) {
  if (!x.samples().batched()) return x.samples();
  for (const std::int64_t axis : touched) {
    if (normalize_axis(op, static_cast<int>(axis), x.rank()) == x.samples().axis()) {
      return x.tape().mix(op, x, advice);
    }
  }
  return x.samples();
}

SampleAxis reshaped_samples(const Op& op, const Var& x, const Shape& shape) {
  if (!x.samples().batched()) return x.samples();
  const int axis = x.samples().axis();
  std::int64_t before = 1;
  for (int i = 0; i < axis; ++i) before *= x.shape()[i];
  int best = -1;
  std::int64_t passed = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool fits = passed == before && shape[i] == x.shape()[axis];
    // Axes of size 1 can make several axes fit; the one nearest to the old axis is chosen.
    if (fits && (best < 0 || std::abs(i - axis) < std::abs(best - axis))) best = i;
    passed *= shape[i];
  }
  if (best >= 0) return best;
  return x.tape().mix(op.name, x,
                      "keep the sample axis separate: merged with positions, each "
                      "position would be a sample, and no longer the record the unit of privacy");
}

Var untracked(Tape& tape, const Tensor& value, SampleAxis samples) {
  if (!samples.batched()) return tape.constant(value, samples);
  const std::int64_t n = tape.sample_count(), rows = value.size(samples.axis());
  return tape.input_views(value, n > 0 ? rows / n : 1, samples.axis());
}

Tensor by_sample(const Tensor& x, SampleAxis samples, int features) {
  std::int64_t width = 1;
  for (int i = 1; i <= features; ++i) width *= x.size(-i);
  const int axis = samples.batched() ? samples.axis() : -1;
  std::int64_t positions = 1;
  for (int i = 0; i < x.rank() - features; ++i) {
    if (i != axis) positions *= x.size(i);
  }
  if (axis < 0) return reshape(x, {1, positions, width});
  Shape order{axis};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) order.push_back(i);
  }
  return reshape(x.permute(order), {x.size(axis), positions, width});
}

}  // namespace sotto
