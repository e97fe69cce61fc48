#include "autograd/per_sample/inner_products.h"

#include <algorithm>

#include "autograd/per_sample/forms.h"
#include "kernels/chunk_bytes.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/term_bounds.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Bytes of materialized gradients or patches that are written at a time, used and dropped.
constexpr std::int64_t cpu_chunk_bytes = std::int64_t{16} << 20;

// A materialized gradient's rounding in float is about 2^-24 of the product of its factors' norms.
// If the gradient's norm is below this fraction of that product, rounding could show in the fifth
// digit of the norm.
constexpr double cancellation_fraction = 0.005;

std::int64_t chunk_samples(Device device, std::size_t bytes_per_sample) {
  const auto each = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes_per_sample));
  return std::max<std::int64_t>(1, chunk_bytes(device, cpu_chunk_bytes) / each);
}

void write_gram(const Form& f, const Form& g, const Tensor& y);

// Gram products of factors of different types, which are converted to f32, a few samples at a time.
void write_gram_of_mixed_types(const Form& f, const Form& g, const Tensor& y) {
  const Form &converted = f.has_16bit_factor() ? f : g, &other = f.has_16bit_factor() ? g : f;
  converted.for_each_converted([&](const Form& chunk, std::int64_t begin, std::int64_t end) {
    write_gram(chunk, other.slice(begin, end).in_type(f.dtype()), y.slice(0, begin, end));
  });
}

void gram_dot(const Outer& f, const Outer& g, const Tensor& y) {
  backend(y.device()).gram_dot(f.a.view(), f.b.view(), g.a.view(), g.b.view(), y.view());
}

// The factors of one group of a convolution; an outer form has one group, itself.
Outer group_factors(const Form& f, std::int64_t group) {
  const auto* images = f.as<Patches>();
  return images ? images->unfolded(group) : *f.as<Outer>();
}

// Adds the Gram products of outer or patches forms to y [n]. Patches are written to memory, a few
// samples at a time, as one outer form per group of the convolution.
void add_gram_of_patches(const Form& f, const Form& g, const Tensor& y) {
  const std::int64_t n = f.samples();
  const auto* images = f.as<Patches>();
  const std::int64_t groups = images ? images->window.groups : 1;
  const auto patch_values = [n](const Patches& p) {
    return p.dy.numel() / std::max<std::int64_t>(n * p.dy.size(1), 1) * p.x.size(1) *
           p.window.positions();
  };
  const std::int64_t step =
      images ? chunk_samples(f.device(),
                             static_cast<std::size_t>(patch_values(*images)) * size_of(f.dtype()))
             : std::max<std::int64_t>(n, 1);
  const auto factors = [in_f64 = has_f64_gram(f) || has_f64_gram(g)](const Form& part,
                                                                     std::int64_t group) {
    const Outer y = group_factors(part, group);
    return in_f64 ? Outer{to_dtype(y.b, Dtype::f64), to_dtype(y.a, Dtype::f64)} : y;
  };
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t at = 0; at < n; at += step) {
      const std::int64_t end = std::min(n, at + step);
      const Outer left = factors(f.slice(at, end), group);
      const Outer right = &f == &g ? left : factors(g.slice(at, end), group);
      const Tensor part = Tensor::empty({end - at}, Dtype::f64, y.device());
      gram_dot(left, right, part);
      axpby(1, part, 1, y.slice(0, at, end));
    }
  }
}

// Gram products of two outer or patches forms, or of two onehot forms.
void write_gram(const Form& f, const Form& g, const Tensor& y) {
  if (f.factor_type() != g.factor_type() || !f.factor_type())
    return write_gram_of_mixed_types(f, g, y);
  Backend& device = backend(y.device());
  if (const auto* u = f.as<OneHot>()) {
    const OneHot& v = *g.as<OneHot>();
    return device.onehot_dot(u->ids.view(), u->b.view(), v.ids.view(), v.b.view(), y.view());
  }
  const auto *u = f.as<Outer>(), *v = g.as<Outer>();
  if (u && v) return gram_dot(*u, *v, y);
  device.fill(0, y.view());
  const auto* p = f.as<Patches>();
  const bool by_pixels = p && &f == &g && !has_f64_gram(f) && pixel_products_are_cheaper(*p);
  if (!by_pixels || !device.conv_gram_norms(p->dy.view(), p->x.view(), p->window, y.view()))
    add_gram_of_patches(f, g, y);
}

// Patches and outputs with so many elements together have Gram products in f64 (has_f64_gram).
constexpr std::int64_t narrow_gram = 128;

// True for the joined images of units of several rows (PerSampleGrad::group) that would have Gram
// products in f64 by themselves: they inherit bounds that hold no other's rounding.
bool joins_narrow_images(const PerSampleGrad& f) {
  const auto* outer = f.form_data().as<Outer>();
  return outer && f.inherited().error_bounds.defined() &&
         outer->a.size(2) + outer->b.size(2) <= narrow_gram;
}

// write_gram() of factors in f64, a few samples at a time.
void write_gram_in_f64(const Form& f, const Form& g, const Tensor& y) {
  const std::int64_t n = f.samples();
  const std::size_t bytes = (f.bytes() + g.bytes()) / static_cast<std::size_t>(n + 1);
  const std::int64_t step = chunk_samples(f.device(), 2 * bytes);
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const auto part = [&](const Form& form) { return form.slice(at, end).in_type(Dtype::f64); };
    write_gram(part(f), part(g), y.slice(0, at, end));
  }
}

// The squared norms [n] of a form's factors: `times` their products bounds the squared norms of its
// gradients. b is undefined for a dense form, a for a table.
struct FactorSquares {
  Tensor a, b;
  double times = 1;
};

FactorSquares factor_squares(const Form& form) {
  if (const auto* f = form.as<OneHot>()) {
    return {{},
            squared_norms(f->b),
            f->positions() / static_cast<double>(std::max<std::int64_t>(1, f->b.size(1)))};
  }
  if (const auto* f = form.as<Patches>())
    return {squared_image_norms(f->x), squared_image_norms(f->dy),
            static_cast<double>(f->window.overlap())};
  const auto* f = form.as<Outer>();
  return f ? FactorSquares{squared_norms(f->a), squared_norms(f->b)} : FactorSquares{};
}

// Adds 1 to `marks` for the samples whose squared norm is so far below the bound of its factors
// that rounding shows in it.
void mark_cancelled(const Tensor& squares, const FactorSquares& factors, const Tensor& marks) {
  backend(marks.device())
      .mark_cancelled(
          {squares.view(), factors.a.defined() ? factors.a.view() : View{}, factors.b.view(),
           factors.times, cancellation_fraction * cancellation_fraction},
          marks.view());
}

void write_products_of_materialized(const PerSampleGrad& f, const PerSampleGrad& g,
                                    const Tensor& needs_f64, const Tensor& y);

// Recomputes in f64 the inner products y of samples whose `squares` are cancelled, one sample at a
// time, so that none depends on which other samples are recomputed; if needs_f64 is defined, marks
// them there instead.
void recompute_cancelled(const PerSampleGrad& f, const PerSampleGrad& g, const Tensor& squares,
                         const FactorSquares& factors, const Tensor& y, const Tensor& needs_f64) {
  if (!factors.b.defined()) return;
  if (needs_f64.defined()) return mark_cancelled(squares, factors, needs_f64);
  const Tensor marks = zeros({f.samples()}, Dtype::f64, f.device());
  mark_cancelled(squares, factors, marks);
  const std::vector<double> marked = marks.to_vector<double>();
  for (std::int64_t id = 0; id < std::ssize(marked); ++id) {
    if (marked[static_cast<std::size_t>(id)] == 0) continue;
    const PerSampleGrad p = in_f64(f.slice(id, id + 1));
    const Tensor one = y.slice(0, id, id + 1);
    if (&f == &g)
      write_products_of_materialized(p, p, {}, one);
    else
      write_products_of_materialized(p, in_f64(g.slice(id, id + 1)), {}, one);
  }
}

// Writes inner products of gradients that are materialized, a few samples at a time. Those of a
// dense or derived form with itself need no recomputation in f64: its gradients are inputs and were
// not rounded here.
void write_products_of_materialized(const PerSampleGrad& f, const PerSampleGrad& g,
                                    const Tensor& needs_f64, const Tensor& y) {
  const bool same = &f == &g;
  if (same && f.form_data().as<Patches>()) return copy_into(conv_norms(f, needs_f64).squares, y);
  const std::int64_t n = f.samples(), width = f.shape().numel();
  const bool arose = f.form_data().as<Dense>() || f.form_data().as<Derived>(),
             exact = f.dtype() == Dtype::f64 || (same && arose);
  const std::int64_t step =
      chunk_samples(f.device(), static_cast<std::size_t>(width) * size_of(f.dtype()));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const PerSampleGrad left = f.slice(at, end), right = g.slice(at, end);
    const Tensor u = reshape(left.materialize(), {end - at, width});
    const Tensor v = same ? u : reshape(right.materialize(), {end - at, width});
    const Tensor part = y.slice(0, at, end);
    backend(y.device()).row_dot(u.view(), v.view(), part.view());
    if (exact) continue;
    const Tensor marks = needs_f64.defined() ? needs_f64.slice(0, at, end) : Tensor();
    const FactorSquares max_left = factor_squares(left.form_data());
    if (same) {
      recompute_cancelled(left, left, part, max_left, part, marks);
    } else {
      recompute_cancelled(left, right, squared_norms(u), max_left, part, marks);
      recompute_cancelled(left, right, squared_norms(v), factor_squares(right.form_data()), part,
                          marks);
    }
  }
}

}  // namespace

Tensor square_root(const Tensor& x) { return unary(unary_index<functors::Sqrt>, x); }

Tensor squared_norms(const Tensor& x) {
  const std::int64_t n = x.size(0);
  const Tensor y = Tensor::empty({n}, Dtype::f64, x.device());
  const Tensor rows = reshape(contiguous(x), {n, n == 0 ? 0 : x.numel() / n});
  backend(x.device()).row_dot(rows.view(), rows.view(), y.view());
  return y;
}

Tensor squared_image_norms(const Tensor& x) { return squared_norms(x.permute({0, 2, 3, 4, 1})); }

bool has_f64_gram(const Form& form) {
  const auto* f = form.as<Patches>();
  if (!f || form.dtype() != Dtype::f32) return false;
  const std::int64_t patch = f->x.size(1) * f->window.positions();
  return (patch + f->dy.size(1)) / f->window.groups <= narrow_gram;
}

PerSampleGrad in_f64(const PerSampleGrad& f) {
  return {f.form_data().in_type(Dtype::f64), f.shape()};
}

ConvNorms conv_norms(const PerSampleGrad& f, const Tensor& needs_f64) {
  const Patches& p = *f.form_data().as<Patches>();
  const Tensor norms = conv_weight_norms(p.dy, p.x, p.window);
  const ConvNorms y{contiguous(norms.select(1, 0)), norms.select(1, 1), norms.select(1, 2)};
  const FactorSquares factors{y.x_squares, y.dy_squares, static_cast<double>(p.window.overlap())};
  if (f.dtype() != Dtype::f64) recompute_cancelled(f, f, y.squares, factors, y.squares, needs_f64);
  return y;
}

void write_inner_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                          const Tensor& needs_f64, const Tensor& y) {
  check(f.samples() == g.samples() && f.shape() == g.shape() && f.dtype() == g.dtype(),
        "dot: {} samples of {} and {} of {}", f.samples(), f.shape(), g.samples(), g.shape());
  if (!uses_gram_products(f, g, norm_method))
    write_products_of_materialized(f, g, needs_f64, y);
  else if (joins_narrow_images(f) || joins_narrow_images(g))
    write_gram_in_f64(f.form_data(), g.form_data(), y);
  else
    write_gram(f.form_data(), g.form_data(), y);
}

Tensor inner_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                      const Tensor& needs_f64) {
  const Tensor y = Tensor::empty({f.samples()}, Dtype::f64, f.device());
  write_inner_products(f, g, norm_method, needs_f64, y);
  return y;
}

}  // namespace sotto::detail
