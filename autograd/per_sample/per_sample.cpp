#include "autograd/per_sample/per_sample.h"

#include <algorithm>

#include "core/overloaded.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"

namespace sotto {

namespace {

// Values of narrow factors that are converted together: 16 MiB in f32.
constexpr std::int64_t part_values = std::int64_t{1} << 22;

Shape with_samples(std::int64_t n, const Shape& shape) {
  Shape y = shape;
  y.insert(0, n);
  return y;
}

// Of how many samples copies are made together, to be weighted, each of `copied` bytes: little
// beside what is there, all factors and their sum, so that a clipped sum needs hardly more than a
// plain one; where that is 16 or more, a multiple of 64, for two threads with whole pieces of
// convolutions.
std::int64_t weighted_together(std::int64_t there, std::int64_t copied) {
  constexpr std::int64_t part = 16, min = std::int64_t{1} << 20, max = std::int64_t{16} << 20,
                         whole = 64;
  const std::int64_t fit = std::clamp(there / part, min, max) / (copied + 1);
  if (fit < whole / 4) return std::max<std::int64_t>(1, fit);
  return std::max<std::int64_t>(1, fit / whole) * whole;
}

// The samples with a weight, or nothing when all have one.
std::optional<std::vector<std::int64_t>> chosen(const Tensor& weights) {
  const std::vector<double> w = to_dtype(weights, Dtype::f64).to_vector<double>();
  if (std::find(w.begin(), w.end(), 0.0) == w.end()) return std::nullopt;
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (w[i] != 0) ids.push_back(static_cast<std::int64_t>(i));
  }
  return ids;
}

}  // namespace

PerSampleGrad::PerSampleGrad(const PerSampleGrad&) = default;
PerSampleGrad::PerSampleGrad(PerSampleGrad&&) noexcept = default;
PerSampleGrad& PerSampleGrad::operator=(const PerSampleGrad&) = default;
PerSampleGrad& PerSampleGrad::operator=(PerSampleGrad&&) noexcept = default;
PerSampleGrad::~PerSampleGrad() = default;

// [n, t, k] -> [n t, k]
Tensor PerSampleGrad::flat(const Tensor& x) {
  return reshape(x, {x.size(0) * x.size(1), x.size(2)});
}

// The weight's shape with three spatial axes.
Shape PerSampleGrad::weight_shape(const Tensor& dy, const Tensor& x, const Window& window) {
  const auto& k = window.kernel;
  return {dy.size(1), x.size(1) / window.groups, k[0], k[1], k[2]};
}

PerSampleGrad PerSampleGrad::outer(const Tensor& b, const Tensor& a, const Shape& shape,
                                   const Tensor& squares) {
  check(b.rank() == 3 && a.rank() == 3 && b.size(0) == a.size(0) && b.size(1) == a.size(1) &&
            b.size(2) * a.size(2) == shape.numel(),
        "PerSampleGrad::outer: factors {} and {} for the shape {}", b.shape(), a.shape(), shape);
  return {Outer{contiguous(b), contiguous(a), squares}, shape};
}

PerSampleGrad PerSampleGrad::patches(const Tensor& dy, const Tensor& x, const Window& window,
                                     const Shape& shape) {
  check(dy.rank() == 5 && x.rank() == 5 && dy.size(0) == x.size(0) &&
            weight_shape(dy, x, window).numel() == shape.numel(),
        "PerSampleGrad::patches: output gradient {} and input {} for the shape {}", dy.shape(),
        x.shape(), shape);
  return {Patches{dy, x, window}, shape};
}

PerSampleGrad PerSampleGrad::onehot(const Tensor& ids, const Tensor& b, const Shape& shape,
                                    bool gaps) {
  check(ids.rank() == 2 && b.rank() == 3 && ids.size(0) == b.size(0) &&
            (ids.size(1) == b.size(1) || b.size(1) == 1) && shape.rank() == 2 &&
            b.size(2) == shape[1],
        "PerSampleGrad::onehot: ids {} and rows {} for the shape {}", ids.shape(), b.shape(),
        shape);
  const bool repeats = b.size(1) > 1 && b.strides()[1] == 0;
  return {OneHot{contiguous(ids), contiguous(repeats ? b.slice(1, 0, 1) : b), gaps}, shape};
}

PerSampleGrad PerSampleGrad::materialized(const Tensor& rows) {
  check(rows.rank() >= 1, "PerSampleGrad::materialized: no sample axis in {}", rows.shape());
  Shape shape = rows.shape();
  shape.erase(0);
  return {Dense{contiguous(rows)}, shape};
}

PerSampleGrad PerSampleGrad::captured_prefix(std::shared_ptr<const PerSampleGrad> whole,
                                             std::int64_t rows) {
  PerSampleGrad y = whole->slice(0, rows);
  y.captured_ = std::move(whole);
  return y;
}

const Tensor& PerSampleGrad::leading() const {
  return std::visit(Overloaded{[](const Outer& f) -> const Tensor& { return f.b; },
                               [](const Patches& f) -> const Tensor& { return f.dy; },
                               [](const OneHot& f) -> const Tensor& { return f.b; },
                               [](const Dense& f) -> const Tensor& { return f.rows; }},
                    form_);
}

std::int64_t PerSampleGrad::samples() const { return leading().size(0); }

Dtype PerSampleGrad::dtype() const { return arithmetic_type(leading().dtype()); }

// What all factors are; nothing where they differ.
std::optional<Dtype> PerSampleGrad::factor_type() const {
  const auto both = [](const Tensor& x, const Tensor& y) {
    return x.dtype() == y.dtype() ? std::optional(x.dtype()) : std::nullopt;
  };
  return std::visit(Overloaded{[&](const Outer& f) { return both(f.b, f.a); },
                               [&](const Patches& f) { return both(f.dy, f.x); },
                               [&](const OneHot& f) { return both(f.b, f.b); },
                               [&](const Dense& f) { return both(f.rows, f.rows); }},
                    form_);
}

std::int64_t PerSampleGrad::factor_values() const {
  return std::visit(Overloaded{[](const Outer& f) { return f.b.numel() + f.a.numel(); },
                               [](const Patches& f) { return f.dy.numel() + f.x.numel(); },
                               [](const OneHot& f) { return f.b.numel(); },
                               [](const Dense& f) { return f.rows.numel(); }},
                    form_);
}

// Calls f(part, begin, end) for some samples after the others, with their factors in the type of
// the arithmetic.
void PerSampleGrad::for_each_part(const OnPart& f) const {
  const std::int64_t n = samples();
  if (!narrow()) return f(*this, std::int64_t{0}, n);
  const std::int64_t step = std::max<std::int64_t>(1, part_values * n / (factor_values() + 1));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    f(slice(at, end).in_type(dtype()), at, end);
  }
}

const char* PerSampleGrad::form() const {
  constexpr const char* names[] = {"outer", "patches", "onehot", "dense"};
  return names[form_.index()];
}

void PerSampleGrad::count_as_kept() const {
  const auto keep = [](MemoryKind kind, std::initializer_list<const Tensor*> tensors) {
    for (const Tensor* x : tensors) {
      const MemoryKind now = x->memory_label().kind;
      // A bias' rows may be a factor of its weight, and count as that.
      if (now == MemoryKind::workspace || now == MemoryKind::other || now == MemoryKind::rows)
        x->relabel(kind);
    }
  };
  std::visit(Overloaded{
                 [&](const Outer& f) {
                   keep(MemoryKind::factors, {&f.b, &f.a});
                 },
                 [&](const Patches& f) {
                   keep(MemoryKind::factors, {&f.dy, &f.x});
                 },
                 [&](const OneHot& f) { keep(MemoryKind::factors, {&f.b}); },
                 [&](const Dense& f) { keep(MemoryKind::rows, {&f.rows}); },
             },
             form_);
}

std::size_t PerSampleGrad::materialized_bytes() const {
  return static_cast<std::size_t>(samples() * shape_.numel()) * size_of(dtype());
}

std::size_t PerSampleGrad::bytes() const {
  return std::visit(Overloaded{[](const Outer& f) { return f.b.bytes() + f.a.bytes(); },
                               [](const Patches& f) { return f.dy.bytes() + f.x.bytes(); },
                               [](const OneHot& f) { return f.ids.bytes() + f.b.bytes(); },
                               [](const Dense& f) { return f.rows.bytes(); }},
                    form_);
}

PerSampleGrad PerSampleGrad::smallest_form() const {
  if (materialized_bytes() >= bytes()) return *this;
  PerSampleGrad rows = materialized(materialize());
  rows.known_ = rounding(false);
  return rows;
}

PerSampleGrad PerSampleGrad::with_rows(const PerSampleGrad& other) const {
  PerSampleGrad y = materialized(add(materialize(), other.materialize()));
  if (known_.error_bounds.defined() || other.known_.error_bounds.defined())
    add_rounding({*this, other}, y.known_);
  return y;
}

// Of a convolution; `norms`, unless it is nullptr, is given what conv_weight_norms gives.
Tensor PerSampleGrad::image_rows(Tensor* norms) const {
  const NoTf32Scope whole;
  const LabelScope scope = LabelScope::kind(MemoryKind::rows);
  const auto& f = std::get<Patches>(form_);
  const Shape weight = weight_shape(f.dy, f.x, f.window);
  return reshape(conv_weight_rows(f.dy, f.x, f.window, weight, norms),
                 with_samples(samples(), shape_));
}

Tensor PerSampleGrad::materialize() const {
  const NoTf32Scope whole;
  const LabelScope scope = LabelScope::kind(MemoryKind::rows);
  const Shape full_shape = with_samples(samples(), shape_);
  if (!multiplied_as_it_is()) {
    const Tensor rows = Tensor::empty(full_shape, dtype(), leading().device());
    for_each_part([&](const PerSampleGrad& part, std::int64_t begin, std::int64_t end) {
      copy_into(part.materialize(), rows.slice(0, begin, end));
    });
    return rows;
  }
  return std::visit(
      Overloaded{[&](const Outer& f) { return reshape(outer_sum(f.b, f.a), full_shape); },
                 [&](const Patches&) { return image_rows(nullptr); },
                 [&](const OneHot& f) {
                   Tensor rows = zeros(full_shape, f.b.dtype(), f.b.device());
                   for (std::int64_t n = 0; n < f.b.size(0); ++n) {
                     backend(f.b.device())
                         .scatter_add(f.b.select(0, n).view(), f.ids.select(0, n).view(), 0,
                                      rows.select(0, n).view());
                   }
                   return rows;
                 },
                 [](const Dense& f) { return f.rows; }},
      form_);
}

// Adds all samples' gradients to y.
void PerSampleGrad::OneHot::add_to(const Tensor& y) const {
  const Tensor rows = flat(b);
  const std::int64_t each = rows.size(0) == 0 ? 1 : ids.numel() / rows.size(0);
  scatter_add_into(rows, reshape(ids, {rows.size(0), each}), 0, y);
}

Tensor PerSampleGrad::sum() const {
  const NoTf32Scope whole;
  if (!multiplied_as_it_is()) {
    const Tensor total = zeros(shape_, dtype(), leading().device());
    for_each_part([&](const PerSampleGrad& part, auto, auto) { axpby(1, part.sum(), 1, total); });
    return total;
  }
  return std::visit(
      Overloaded{[&](const Outer& f) { return reshape(outer_sum(flat(f.b), flat(f.a)), shape_); },
                 [&](const Patches& f) {
                   return reshape(
                       conv_weight(f.dy, f.x, f.window, weight_shape(f.dy, f.x, f.window)), shape_);
                 },
                 [&](const OneHot& f) {
                   const Tensor y = zeros(shape_, f.b.dtype(), f.b.device());
                   f.add_to(y);
                   return y;
                 },
                 [](const Dense& f) {
                   // A single row that is ours alone is its sum, and need not be copied.
                   const bool itself = f.rows.size(0) == 1 && f.rows.sole();
                   return itself ? f.rows.squeeze(0) : sotto::sum(f.rows, {0});
                 }},
      form_);
}

Tensor PerSampleGrad::sum(const Tensor& weights) const {
  const NoTf32Scope whole;
  check(weights.rank() == 1 && weights.size(0) == samples(),
        "PerSampleGrad::sum: weights {} for {} samples", weights.shape(), samples());
  if (const auto* f = std::get_if<Dense>(&form_)) {
    Tensor y = Tensor::empty(shape_, dtype(), f->rows.device());
    backend(y.device())
        .weighted_sum(reshape(f->rows, {samples(), shape_.numel()}).view(),
                      weights.to(y.device()).view(), 0, reshape(y, {shape_.numel()}).view());
    return y;
  }
  const bool here = weights.device() == cpu;
  if (!here && scaled_in_pieces()) return sum_in_pieces(weights);
  const auto add_sum = [](const PerSampleGrad& part, const Tensor& y) {
    if (const auto* f = std::get_if<Outer>(&part.form_)) {
      const Tensor a = flat(f->a), b = flat(f->b);
      return outer_sum_add(b, a, reshape(y, {b.size(1), a.size(1)}));
    }
    if (const auto* f = std::get_if<OneHot>(&part.form_)) return f->add_to(y);
    axpby(1, part.sum(), 1, y);
  };
  Tensor y;
  for_each_weighted(weights, {}, [&](const PerSampleGrad& part, auto) {
    if (y.defined())
      add_sum(part, y);
    else
      y = part.sum();
  });
  return y;
}

// Calls f(part, ends) for some samples after the others, those with a weight, times their weights;
// one factor is copied, or both where they are narrow. Where there are blocks none is parted, and
// the part's ends are those of its own. At least once.
void PerSampleGrad::for_each_weighted(const Tensor& weights, const std::vector<std::int64_t>& ends,
                                      const OnWeighted& f) const {
  const bool here = weights.device() == cpu;
  const std::int64_t n = samples(), copied = leading().numel() + (narrow() ? factor_values() : 0);
  const auto element = static_cast<std::int64_t>(size_of(dtype()));
  const std::int64_t step = weighted_together(element * (factor_values() + shape_.numel()),
                                              element * copied / std::max<std::int64_t>(1, n));
  auto block = ends.begin();
  std::int64_t at = 0;
  do {
    std::int64_t end = std::min(n, at + step);
    const auto first = block;
    for (; block != ends.end() && (block == first || *block <= at + step); ++block) end = *block;
    const Tensor w = weights.slice(0, at, end);
    const std::optional<std::vector<std::int64_t>> ids = here ? chosen(w) : std::nullopt;
    const PerSampleGrad all = slice(at, end), wide = narrow() ? all.in_type(dtype()) : all;
    const PerSampleGrad some = here ? wide : wide.masked(w);
    std::vector<std::int64_t> of_part;
    for (auto of = first; of != block; ++of)
      of_part.push_back(ids ? std::lower_bound(ids->begin(), ids->end(), *of - at) - ids->begin()
                            : *of - at);
    if (ids) {
      const Tensor rows = Tensor::from(*ids, {std::ssize(*ids)});
      f(some.selected(rows).scaled(gather(w, rows, 0)), of_part);
    } else {
      f(some.scaled(w), of_part);
    }
    at = end;
  } while (at < n);
}

PerSampleGrad PerSampleGrad::reshaped(const Shape& shape) const {
  check(shape.numel() == shape_.numel(), "PerSampleGrad::reshaped: {} to {}", shape_, shape);
  if (const auto* f = std::get_if<Dense>(&form_)) {
    PerSampleGrad y = materialized(reshape(f->rows, with_samples(samples(), shape)));
    y.known_ = known_;
    return y;
  }
  // The other forms say nothing of how the parameter's elements are laid out in axes, but a table.
  if (std::holds_alternative<OneHot>(form_)) return materialized(materialize()).reshaped(shape);
  return {form_, shape};
}

PerSampleGrad PerSampleGrad::permuted(const Shape& axes) const {
  if (const auto* f = std::get_if<Outer>(&form_)) {
    const bool matrix = shape_.rank() == 2 && shape_[0] == f->b.size(2) && axes[0] % 2 != 0;
    if (matrix) return outer(f->a, f->b, {shape_[1], shape_[0]});
  }
  Shape order{0};
  for (int k = 0; k < axes.rank(); ++k) order.push_back((axes[k] + axes.rank()) % axes.rank() + 1);
  PerSampleGrad y = materialized(materialize().permute(order));
  y.known_ = known_;
  return y;
}

}  // namespace sotto
