#include "autograd/per_sample/forms.h"

#include <algorithm>

#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"

namespace sotto::detail {

namespace {

// Number of 16-bit factor values that are converted at a time: 16 MiB in f32.
constexpr std::int64_t converted_values = std::int64_t{1} << 22;

Shape with_samples(std::int64_t n, const Shape& shape) {
  Shape y = shape;
  y.insert(0, n);
  return y;
}

// Reshapes weights [n] to as many axes as x has, to broadcast along its sample axis.
Tensor along_samples(const Tensor& weights, const Tensor& x) {
  Shape shape = Shape::filled(x.rank(), 1);
  shape[0] = weights.numel();
  return reshape(weights, shape);
}

// Multiplies each sample of x by its weight, in the type of sums.
Tensor weighted(const Tensor& x, const Tensor& weights) {
  const Dtype dtype = arithmetic_type(x.dtype());
  return mul(to_dtype(x, dtype), along_samples(to_dtype(weights, dtype), x));
}

// x, with zeros in place of the samples of weight 0.
Tensor masked(const Tensor& x, const Tensor& weights) {
  const Tensor zero = zeros({}, arithmetic_type(x.dtype()), x.device());
  return where(along_samples(weights, x), x, zero);
}

}  // namespace

Tensor flat(const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), x.size(2)}); }

PerSampleGrad padded_outer(const Tensor& b, const Tensor& a, const Shape& shape) {
  check(b.rank() == 3 && a.rank() == 3 && b.size(0) == a.size(0) && b.size(1) == a.size(1) &&
            shape.rank() == 2 && a.size(2) == shape[1] && b.size(2) >= shape[0],
        "padded_outer: factors {} and {} for the shape {}", b.shape(), a.shape(), shape);
  return {Outer{contiguous(b), contiguous(a)}, shape};
}

Tensor own_columns(const Outer& f, const Shape& shape) {
  return f.a.size(2) == 0 ? f.b : f.b.slice(2, 0, shape.numel() / f.a.size(2));
}

Tensor Outer::materialize(const Shape& shape) const {
  return reshape(outer_sum(own_columns(*this, shape), a), with_samples(b.size(0), shape));
}

// All columns are multiplied, so that products are aligned, and the first rows of the result kept.
Tensor Outer::sum(const Shape& shape) const {
  const std::int64_t rows = own_columns(*this, shape).size(2);
  return reshape(outer_sum(flat(b), flat(a)).slice(0, 0, rows), shape);
}

void Outer::add_sum(const Tensor& y) const {
  const std::int64_t rows = own_columns(*this, y.shape()).size(2);
  outer_sum_add(flat(b).slice(1, 0, rows), flat(a), reshape(y, {rows, a.size(2)}));
}

Outer Outer::slice(std::int64_t begin, std::int64_t end) const {
  return {b.slice(0, begin, end), a.slice(0, begin, end),
          squares.defined() ? squares.slice(0, begin, end) : squares};
}

Outer Outer::select(const Tensor& ids) const { return {gather(b, ids, 0), gather(a, ids, 0)}; }
Outer Outer::scale(const Tensor& weights) const { return {weighted(b, weights), a}; }
Outer Outer::mask(const Tensor& weights) const { return {masked(b, weights), a}; }
Outer Outer::in_type(Dtype dtype) const { return {to_dtype(b, dtype), to_dtype(a, dtype)}; }

Shape Patches::weight_shape() const {
  const auto& k = window.kernel;
  return {dy.size(1), x.size(1) / window.groups, k[0], k[1], k[2]};
}

Outer Patches::unfolded(std::int64_t group) const {
  const std::int64_t o = dy.size(1) / window.groups, c = x.size(1) / window.groups;
  const Tensor a = unfold(x.slice(1, group * c, (group + 1) * c), window);
  const Tensor last = dy.slice(1, group * o, (group + 1) * o).permute({0, 2, 3, 4, 1});
  return {contiguous(reshape(last, {dy.size(0), a.size(1), o})), contiguous(a)};
}

Tensor Patches::materialize(const Shape& shape, Tensor* norms) const {
  return reshape(conv_weight_rows(dy, x, window, weight_shape(), norms),
                 with_samples(dy.size(0), shape));
}

Tensor Patches::sum(const Shape& shape) const {
  return reshape(conv_weight(dy, x, window, weight_shape()), shape);
}

void Patches::add_sum(const Tensor& y) const { axpby(1, sum(y.shape()), 1, y); }

Patches Patches::slice(std::int64_t begin, std::int64_t end) const {
  return {dy.slice(0, begin, end), x.slice(0, begin, end), window};
}

Patches Patches::select(const Tensor& ids) const {
  return {gather(channels_last(dy), ids, 0), gather(channels_last(x), ids, 0), window};
}

Patches Patches::scale(const Tensor& weights) const { return {weighted(dy, weights), x, window}; }
Patches Patches::mask(const Tensor& weights) const { return {masked(dy, weights), x, window}; }

Patches Patches::in_type(Dtype dtype) const {
  return {to_dtype(dy, dtype), to_dtype(x, dtype), window};
}

// A row of the table may be the sum of many positions: it is added up in f64 and rounded once.
Tensor OneHot::materialize(const Shape& shape) const {
  Tensor y = Tensor::empty(with_samples(b.size(0), shape), b.dtype(), b.device());
  for (std::int64_t n = 0; n < b.size(0); ++n) {
    const Tensor row = zeros(shape, Dtype::f64, b.device());
    slice(n, n + 1).in_type(Dtype::f64).add_sum(row);
    copy_into(row, y.select(0, n));
  }
  return y;
}

Tensor OneHot::sum(const Shape& shape) const {
  const Tensor y = zeros(shape, b.dtype(), b.device());
  add_sum(y);
  return y;
}

void OneHot::add_sum(const Tensor& y) const {
  const Tensor rows = flat(b);
  const std::int64_t each = rows.size(0) == 0 ? 1 : ids.numel() / rows.size(0);
  scatter_add_into(rows, reshape(ids, {rows.size(0), each}), 0, y);
}

OneHot OneHot::slice(std::int64_t begin, std::int64_t end) const {
  return {ids.slice(0, begin, end), b.slice(0, begin, end), gaps};
}

OneHot OneHot::select(const Tensor& samples) const {
  return {gather(ids, samples, 0), gather(b, samples, 0), true};
}

OneHot OneHot::scale(const Tensor& weights) const { return {ids, weighted(b, weights), gaps}; }
OneHot OneHot::mask(const Tensor& weights) const { return {ids, masked(b, weights), gaps}; }
OneHot OneHot::in_type(Dtype dtype) const { return {ids, to_dtype(b, dtype), gaps}; }

Tensor Dense::sum(const Shape&) const {
  // A single gradient with no other reference is its own sum and need not be copied.
  const bool itself = gradients.size(0) == 1 && gradients.sole();
  return itself ? gradients.squeeze(0) : sotto::sum(gradients, {0});
}

void Dense::add_sum(const Tensor& y) const { axpby(1, sum(y.shape()), 1, y); }

Dense Dense::slice(std::int64_t begin, std::int64_t end) const {
  return {gradients.slice(0, begin, end)};
}

Dense Dense::select(const Tensor& ids) const { return {gather(gradients, ids, 0)}; }
Dense Dense::scale(const Tensor& weights) const { return {weighted(gradients, weights)}; }
Dense Dense::mask(const Tensor& weights) const { return {masked(gradients, weights)}; }
Dense Dense::in_type(Dtype dtype) const { return {to_dtype(gradients, dtype)}; }

const char* Form::name() const {
  return visit([](const auto& form) { return form.name; });
}

const Tensor& Form::leading() const {
  return visit([](const auto& form) -> const Tensor& { return *form.factors()[0]; });
}

Dtype Form::dtype() const {
  const auto* f = as<Derived>();
  return f ? f->dtype : arithmetic_type(leading().dtype());
}

std::optional<Dtype> Form::factor_type() const {
  if (const auto* f = as<Derived>()) return f->dtype;  // what is read
  return visit([](const auto& form) {
    const auto factors = form.factors();
    const Dtype dtype = factors[0]->dtype();
    return factors.back()->dtype() == dtype ? std::optional(dtype) : std::nullopt;
  });
}

// Products of two 16-bit numbers are exact in f32. Processors may take subnormal factors for zeros:
// docs/appendix/proofs-rounding.md, "16 bits", says why a norm of the factors as they are bounds
// their sum. Kernels for patches take 16-bit factors everywhere.
bool Form::multiplies_factors_directly() const {
  return !has_16bit_factor() || as<Patches>() || (as<Outer>() && factor_type());
}

std::int64_t Form::factor_values() const {
  return visit([](const auto& form) {
    std::int64_t values = 0;
    for (const Tensor* factor : form.factors()) values += factor->numel();
    return values;
  });
}

std::size_t Form::bytes() const {
  return visit([](const auto& form) { return form.bytes(); });
}

double Form::positions() const {
  return visit([](const auto& form) { return form.positions(); });
}

void Form::count_as_kept() const {
  if (const auto* f = as<Derived>()) {
    for (const PerSampleGrad& use : f->uses) use.count_as_kept();
    return;
  }
  visit([](const auto& form) {
    for (const Tensor* x : form.factors()) {
      const MemoryKind now = x->memory_label().kind;
      // A bias' materialized gradient may also be a factor of its weight, and is labelled as that.
      if (now == MemoryKind::workspace || now == MemoryKind::other ||
          now == MemoryKind::per_sample_grad)
        x->relabel(form.kept_as);
    }
  });
}

Tensor Form::materialize(const Shape& shape) const {
  if (multiplies_factors_directly())
    return visit([&](const auto& form) { return form.materialize(shape); });
  const Tensor y = Tensor::empty(with_samples(samples(), shape), dtype(), device());
  for_each_converted([&](const Form& chunk, std::int64_t begin, std::int64_t end) {
    copy_into(chunk.materialize(shape), y.slice(0, begin, end));
  });
  return y;
}

Tensor Form::sum(const Shape& shape) const {
  if (multiplies_factors_directly())
    return visit([&](const auto& form) { return form.sum(shape); });
  const Tensor total = zeros(shape, dtype(), device());
  for_each_converted([&](const Form& chunk, auto, auto) { axpby(1, chunk.sum(shape), 1, total); });
  return total;
}

void Form::add_sum(const Tensor& y) const {
  visit([&](const auto& form) { form.add_sum(y); });
}

Form Form::slice(std::int64_t begin, std::int64_t end) const {
  return visit([&](const auto& form) -> Form { return form.slice(begin, end); });
}

Form Form::select(const Tensor& ids) const {
  return visit([&](const auto& form) -> Form { return form.select(ids); });
}

Form Form::scale(const Tensor& weights) const {
  return visit([&](const auto& form) -> Form { return form.scale(weights); });
}

Form Form::mask(const Tensor& weights) const {
  return visit([&](const auto& form) -> Form { return form.mask(weights); });
}

Form Form::in_type(Dtype dtype) const {
  return visit([&](const auto& form) -> Form { return form.in_type(dtype); });
}

void Form::for_each_converted(
    const std::function<void(const Form& chunk, std::int64_t begin, std::int64_t end)>& f) const {
  const std::int64_t n = samples();
  if (!has_16bit_factor()) return f(*this, 0, n);
  const std::int64_t step = std::max<std::int64_t>(1, converted_values * n / (factor_values() + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    f(slice(at, end).in_type(dtype()), at, end);
  }
}

}  // namespace sotto::detail
