// Per-sample gradients of some of the samples, times a weight for each, and with factors of another
// type: form by form.
#include "autograd/per_sample/per_sample.h"
#include "core/overloaded.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// x's samples times a weight each, in the type of the arithmetic.
Tensor weighted(const Tensor& x, const Tensor& weights) {
  const Dtype dtype = arithmetic_type(x.dtype());
  Shape shape = Shape::filled(x.rank(), 1);
  shape[0] = weights.numel();
  return mul(to_dtype(x, dtype), reshape(to_dtype(weights, dtype), shape));
}

}  // namespace

PerSampleGrad PerSampleGrad::slice(std::int64_t begin, std::int64_t end) const {
  const auto part = [&](const Tensor& x) { return x.defined() ? x.slice(0, begin, end) : x; };
  PerSampleGrad y = std::visit(
      Overloaded{[&](const Outer& f) {
                   return PerSampleGrad(Outer{part(f.b), part(f.a), part(f.squares)}, shape_);
                 },
                 [&](const Patches& f) {
                   return PerSampleGrad(Patches{part(f.dy), part(f.x), f.window}, shape_);
                 },
                 [&](const OneHot& f) {
                   return PerSampleGrad(OneHot{part(f.ids), part(f.b), f.gaps}, shape_);
                 },
                 [&](const Dense& f) { return PerSampleGrad(Dense{part(f.rows)}, shape_); }},
      form_);
  y.known_ = {part(known_.squares), part(known_.error_bounds), part(known_.term_norms), {}};
  return y;
}

PerSampleGrad PerSampleGrad::selected(const Tensor& ids) const {
  const auto part = [&](const Tensor& x) { return gather(x, ids, 0); };
  return std::visit(
      Overloaded{[&](const Outer& f) {
                   return PerSampleGrad(Outer{part(f.b), part(f.a)}, shape_);
                 },
                 [&](const Patches& f) {
                   return PerSampleGrad(
                       Patches{part(channels_last(f.dy)), part(channels_last(f.x)), f.window},
                       shape_);
                 },
                 [&](const OneHot& f) {
                   return PerSampleGrad(OneHot{part(f.ids), part(f.b), true}, shape_);
                 },
                 [&](const Dense& f) { return PerSampleGrad(Dense{part(f.rows)}, shape_); }},
      form_);
}

PerSampleGrad PerSampleGrad::scaled(const Tensor& weights) const {
  return std::visit(
      Overloaded{
          [&](const Outer& f) {
            return PerSampleGrad(Outer{weighted(f.b, weights), f.a}, shape_);
          },
          [&](const Patches& f) {
            return PerSampleGrad(Patches{weighted(f.dy, weights), f.x, f.window}, shape_);
          },
          [&](const OneHot& f) {
            return PerSampleGrad(OneHot{f.ids, weighted(f.b, weights), f.gaps}, shape_);
          },
          [&](const Dense& f) { return PerSampleGrad(Dense{weighted(f.rows, weights)}, shape_); }},
      form_);
}

// The same with zeros in the place of samples of weight 0, in the factor that is scaled: where the
// other one is finite these samples add exactly nothing, and where it is not the sum is not.
PerSampleGrad PerSampleGrad::masked(const Tensor& weights) const {
  const Tensor zero = zeros({}, dtype(), leading().device());
  const auto part = [&](const Tensor& x) {
    Shape shape = Shape::filled(x.rank(), 1);
    shape[0] = weights.numel();
    return where(reshape(weights, shape), x, zero);
  };
  return std::visit(
      Overloaded{[&](const Outer& f) {
                   return PerSampleGrad(Outer{part(f.b), f.a}, shape_);
                 },
                 [&](const Patches& f) {
                   return PerSampleGrad(Patches{part(f.dy), f.x, f.window}, shape_);
                 },
                 [&](const OneHot& f) {
                   return PerSampleGrad(OneHot{f.ids, part(f.b), f.gaps}, shape_);
                 },
                 [&](const Dense& f) { return PerSampleGrad(Dense{part(f.rows)}, shape_); }},
      form_);
}

// The same with factors of another type.
PerSampleGrad PerSampleGrad::in_type(Dtype dtype) const {
  const auto as = [dtype](const Tensor& x) { return to_dtype(x, dtype); };
  return std::visit(
      Overloaded{[&](const Outer& f) {
                   return PerSampleGrad(Outer{as(f.b), as(f.a)}, shape_);
                 },
                 [&](const Patches& f) {
                   return PerSampleGrad(Patches{as(f.dy), as(f.x), f.window}, shape_);
                 },
                 [&](const OneHot& f) {
                   return PerSampleGrad(OneHot{f.ids, as(f.b), f.gaps}, shape_);
                 },
                 [&](const Dense& f) { return PerSampleGrad(Dense{as(f.rows)}, shape_); }},
      form_);
}

}  // namespace sotto
