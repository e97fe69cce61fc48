// Inner products of per-sample gradients, and the choice between Gram products and rows.
#include <algorithm>
#include <cmath>

#include "autograd/per_sample/per_sample.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// What a chunk of samples may take where rows or patches are only passed through.
constexpr std::size_t chunk_bytes = std::size_t{16} << 20;

// A row's rounding in float is about 2^-24 of the product of its factors' norms. Below this share
// of that product it could show in the fifth digit of the row's norm.
constexpr double cancellation_share = 0.005;

std::int64_t chunk_samples(std::size_t bytes_per_sample) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(chunk_bytes / std::max<std::size_t>(bytes_per_sample, 1)));
}

struct GramTimes {
  double pixels, patches;
};

// What the Gram products of a convolution's pixels take for one sample, or infinity where there are
// none, and those of its patches, which are written out and read.
GramTimes gram_times(const Geometry& g, std::size_t element, const CostModel& costs) {
  const Window& w = g.window;
  const auto flops = [&](double pixels, double inner, double positions) {
    const double outputs = static_cast<double>(g.outputs);
    return 2 * (pixels * pixels * inner + positions * positions * outputs) / costs.gram_flops;
  };
  const double positions = static_cast<double>(g.positions());
  const double inner = static_cast<double>(g.channels * w.positions());
  const double bytes = 2 * positions * inner * static_cast<double>(element);
  GramTimes t{HUGE_VAL, flops(positions, inner, positions) + bytes / costs.bytes};
  const bool by_one = std::all_of(w.stride, w.stride + 3, [](std::int64_t s) { return s == 1; });
  if (!by_one || costs.shifted_adds == 0) return t;
  const double adds = positions * positions / 2 * static_cast<double>(w.groups * w.positions());
  t.pixels = flops(static_cast<double>(g.pixels()), static_cast<double>(g.channels), positions) +
             adds / costs.shifted_adds;
  return t;
}

}  // namespace

// The factors of one group of a convolution, with its patches written out; an outer form as it is.
PerSampleGrad PerSampleGrad::factors(const PerSampleGrad& f, std::int64_t group) {
  const auto* p = std::get_if<Patches>(&f.form_);
  if (!p) return f;
  const std::int64_t groups = p->window.groups;
  const std::int64_t o = p->dy.size(1) / groups;
  const std::int64_t n = p->dy.size(0);
  const Tensor dy = p->dy.slice(1, group * o, (group + 1) * o);
  const std::int64_t c = p->x.size(1) / groups;
  const Tensor a = unfold(p->x.slice(1, group * c, (group + 1) * c), p->window);
  const Tensor b = reshape(dy.permute({0, 2, 3, 4, 1}), {n, a.size(1), o});
  return outer(b, a, groups == 1 ? f.shape_ : Shape{o, a.size(2)});
}

// The same for factors of different types, or of a type and its wider one.
Tensor PerSampleGrad::gram_of_parts(const PerSampleGrad& f, const PerSampleGrad& g) {
  Tensor y = Tensor::empty({f.samples()}, Dtype::f64, f.leading().device());
  const PerSampleGrad &batch_dims = f.narrow() ? f : g, &other = f.narrow() ? g : f;
  batch_dims.for_each_part([&](const PerSampleGrad& part, std::int64_t begin, std::int64_t end) {
    copy_into(gram(part, other.slice(begin, end).in_type(f.dtype())), y.slice(0, begin, end));
  });
  return y;
}

// Sample-wise Gram products of outer and patches forms, or of two onehot forms.
Tensor PerSampleGrad::gram(const PerSampleGrad& f, const PerSampleGrad& g) {
  const std::int64_t n = f.samples();
  if (f.factor_type() != g.factor_type() || !f.factor_type()) return gram_of_parts(f, g);
  Tensor y = Tensor::empty({n}, Dtype::f64, f.leading().device());
  Backend& device = backend(y.device());
  if (const auto* u = std::get_if<OneHot>(&f.form_)) {
    const auto& v = std::get<OneHot>(g.form_);
    device.onehot_dot(u->ids.view(), u->b.view(), v.ids.view(), v.b.view(), y.view());
    return y;
  }
  const auto *u = std::get_if<Outer>(&f.form_), *v = std::get_if<Outer>(&g.form_);
  if (u && v) {
    device.gram_dot(u->a.view(), u->b.view(), v->a.view(), v->b.view(), y.view());
    return y;
  }
  device.fill(0, y.view());
  const auto* p = std::get_if<Patches>(&f.form_);
  if (p && &f == &g) {
    const View dy = p->dy.view(), x = p->x.view();
    const GramTimes t = gram_times(Geometry(x, dy, p->window), size_of(f.dtype()), device.costs());
    if (t.pixels < t.patches && device.conv_gram_norms(dy, x, p->window, y.view())) return y;
  }
  const std::int64_t groups = p ? p->window.groups : 1;
  const std::int64_t step =
      p ? chunk_samples(static_cast<std::size_t>(p->dy.numel() /
                                                 std::max<std::int64_t>(n * p->dy.size(1), 1) *
                                                 p->x.size(1) * p->window.positions()) *
                        size_of(f.dtype()))
        : std::max<std::int64_t>(n, 1);
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t at = 0; at < n; at += step) {
      const std::int64_t end = std::min(n, at + step);
      const PerSampleGrad left = factors(f.slice(at, end), group);
      const PerSampleGrad right = &f == &g ? left : factors(g.slice(at, end), group);
      const auto& u = std::get<Outer>(left.form_);
      const auto& v = std::get<Outer>(right.form_);
      Tensor part = Tensor::empty({end - at}, Dtype::f64, y.device());
      device.gram_dot(u.a.view(), u.b.view(), v.a.view(), v.b.view(), part.view());
      axpby(1, part, 1, y.slice(0, at, end));
    }
  }
  return y;
}

namespace {

// 1 for samples whose row is so much smaller than its factors that the rounding of the row shows,
// by the squared norms of both, and 0 for the others, NaN among them; nothing without factors.
Tensor cancelled(const Tensor& rows, const Tensor& factors) {
  if (!factors.defined()) return {};
  const Tensor min = scale(factors, cancellation_share * cancellation_share);
  const auto number = [&](double value) { return full({}, value, Dtype::f64, rows.device()); };
  return where(binary(binary_index<GreaterEqual>, rows, min), number(0), number(1));
}

}  // namespace

// [n], the squared norm of each sample of x.
Tensor PerSampleGrad::squared_norms(const Tensor& x) {
  const std::int64_t n = x.size(0);
  Tensor y = Tensor::empty({n}, Dtype::f64, x.device());
  const Tensor rows = reshape(contiguous(x), {n, n == 0 ? 0 : x.numel() / n});
  backend(x.device()).row_dot(rows.view(), rows.view(), y.view());
  return y;
}

// An upper bound of the squared norm of each row, from the factors' norms alone; nothing for rows.
Tensor PerSampleGrad::bounds() const {
  if (const auto* f = std::get_if<OneHot>(&form_)) {
    const auto positions = static_cast<double>(f->ids.size(1));
    return scale(squared_norms(f->b),
                 positions / static_cast<double>(std::max<std::int64_t>(1, f->b.size(1))));
  }
  if (const auto* f = std::get_if<Patches>(&form_)) {
    const auto norms = [](const Tensor& x) { return squared_norms(x.permute({0, 2, 3, 4, 1})); };
    return mul(norms(f->dy), scale(norms(f->x), static_cast<double>(f->window.overlap())));
  }
  const auto* f = std::get_if<Outer>(&form_);
  return f ? mul(squared_norms(f->b), squared_norms(f->a)) : Tensor();
}

// Takes inner products again in double where there is a mark, or marks them as doubtful. One sample
// at a time, so that none depends on which others are computed again.
void PerSampleGrad::recompute_in_f64(const PerSampleGrad& f, const PerSampleGrad& g,
                                     const Tensor& marks, const Tensor& y,
                                     const Tensor& needs_f64) {
  if (!marks.defined()) return;
  if (needs_f64.defined()) return axpby(1, marks, 1, needs_f64);
  const std::vector<double> again = marks.to_vector<double>();
  for (std::int64_t id = 0; id < std::ssize(again); ++id) {
    if (again[static_cast<std::size_t>(id)] == 0) continue;
    const PerSampleGrad p = f.slice(id, id + 1).wide();
    copy_into(&f == &g ? by_rows(p, p) : by_rows(p, g.slice(id, id + 1).wide()),
              y.slice(0, id, id + 1));
  }
}

// The norms of a convolution's rows, none of which is written; and what rounding may add to them,
// as both factors' norms come with them.
Tensor PerSampleGrad::row_norms(const PerSampleGrad& f, const Tensor& needs_f64,
                                NormEstimate* more) {
  const auto& p = std::get<Patches>(f.form_);
  const Tensor norms = conv_weight_norms(p.dy, p.x, p.window);
  Tensor y = contiguous(norms.select(1, 0));
  const Tensor dy = norms.select(1, 1), x = norms.select(1, 2);
  const Tensor bounds = mul(dy, scale(x, static_cast<double>(p.window.overlap())));
  if (f.dtype() != Dtype::f64) recompute_in_f64(f, f, cancelled(y, bounds), y, needs_f64);
  if (more) *more = f.of_images(dy, x);
  return y;
}

Tensor PerSampleGrad::by_rows(const PerSampleGrad& f, const PerSampleGrad& g,
                              const Tensor& needs_f64) {
  if (&f == &g && std::holds_alternative<Patches>(f.form_)) return row_norms(f, needs_f64);
  const std::int64_t n = f.samples();
  const std::int64_t width = f.shape_.numel();
  const bool exact = f.dtype() == Dtype::f64;
  Tensor y = Tensor::empty({n}, Dtype::f64, f.leading().device());
  const std::int64_t step = chunk_samples(static_cast<std::size_t>(width) * size_of(f.dtype()));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const PerSampleGrad left = f.slice(at, end), right = g.slice(at, end);
    const Tensor u = reshape(left.materialize(), {end - at, width});
    const Tensor v = &f == &g ? u : reshape(right.materialize(), {end - at, width});
    const Tensor part = y.slice(0, at, end);
    backend(y.device()).row_dot(u.view(), v.view(), part.view());
    // The rows themselves lost nothing.
    if (exact || (&f == &g && std::holds_alternative<Dense>(f.form_))) continue;
    const Tensor doubtful = needs_f64.defined() ? needs_f64.slice(0, at, end) : Tensor();
    if (&f == &g) {
      recompute_in_f64(left, left, cancelled(part, left.bounds()), part, doubtful);
    } else {
      recompute_in_f64(left, right, cancelled(squared_norms(u), left.bounds()), part, doubtful);
      recompute_in_f64(left, right, cancelled(squared_norms(v), right.bounds()), part, doubtful);
    }
  }
  return y;
}

// With one position a linear layer's norm is the product of its factors' norms.
PerSampleGrad::Times PerSampleGrad::times() const {
  const CostModel costs = backend(leading().device()).costs();
  const double width = static_cast<double>(shape_.numel());
  const double row = width * static_cast<double>(size_of(dtype())) / costs.bytes;
  const auto of = [&](double positions, double inner, double outer_width) {
    const double rows = 2 * positions * width / costs.rows_flops;
    const double gram = 2 * positions * positions * (inner + outer_width) / costs.gram_flops;
    return Times{rows, gram, rows + 3 * row, 2 * positions * width / costs.sum_flops};
  };
  if (const auto* f = std::get_if<Outer>(&form_)) {
    Times t = of(static_cast<double>(f->b.size(1)), static_cast<double>(f->a.size(2)),
                 static_cast<double>(f->b.size(2)));
    t.rows_norm += 2 * row;
    if (f->b.size(1) == 1) t.gram_norm = 0;
    return t;
  }
  if (const auto* f = std::get_if<Patches>(&form_)) {
    const Geometry g(f->x.view(), f->dy.view(), f->window);
    const GramTimes gram = gram_times(g, size_of(dtype()), costs);
    Times t = of(static_cast<double>(g.positions()), 0, 0);
    t.gram_norm = std::min(gram.pixels, gram.patches);
    return t;
  }
  return {1, 0, 1, 0};  // rows of a table are never worth writing out
}

// Whether sums and rows are products of the factors themselves. Those of two 16-bit numbers are
// exact in f32, in which GPUs add them up; the CPU's instructions for them take subnormal numbers
// for zeros, and norms and sums must see the same numbers.
bool PerSampleGrad::multiplied_as_it_is() const {
  if (!narrow() || std::holds_alternative<Patches>(form_)) return true;
  return std::holds_alternative<Outer>(form_) && factor_type() && leading().device() != cpu;
}

PerSampleGrad PerSampleGrad::materialize_if_cheaper(NormMethod norm_method,
                                                    std::size_t budget) const {
  if (std::holds_alternative<Dense>(form_) || materialized_bytes() > budget) return *this;
  const Times t = times();
  // Whoever computes in 16 bits does so for bytes.
  const std::size_t factors =
      static_cast<std::size_t>(factor_values()) * size_of(leading().dtype());
  const bool cheaper = t.kept_rows < std::min(t.rows_norm, t.gram_norm) + t.sum &&
                       !(narrow() && materialized_bytes() > factors);
  const bool rows =
      norm_method == NormMethod::materialize || (norm_method == NormMethod::automatic && cheaper);
  if (!rows) return *this;
  // Whether there is room for rows depends on who else is in the batch; what a norm is worth may
  // not.
  if (std::holds_alternative<Patches>(form_)) {
    Tensor norms;  // taken while rows and images are in the caches
    PerSampleGrad kept = materialized(image_rows(&norms));
    kept.known_ = of_images(norms.select(1, 1), norms.select(1, 2));
    kept.known_.squares = contiguous(norms.select(1, 0));
    return kept;
  }
  PerSampleGrad kept = materialized(materialize());
  if (positions() > 1) kept.known_ = rounding(true);
  return kept;
}

// Whether an inner product is taken by the factors.
bool PerSampleGrad::by_gram(const PerSampleGrad& f, const PerSampleGrad& g,
                            NormMethod norm_method) {
  const auto factored = [](const PerSampleGrad& p) {
    return std::holds_alternative<Outer>(p.form_) || std::holds_alternative<Patches>(p.form_);
  };
  const auto groups = [](const PerSampleGrad& p) {
    const auto* patches = std::get_if<Patches>(&p.form_);
    return patches ? patches->window.groups : 1;
  };
  const auto columns = [](const PerSampleGrad& p) {
    const auto* outer = std::get_if<Outer>(&p.form_);
    return outer ? outer->a.size(2)
                 : p.shape_.numel() / std::max<std::int64_t>(p.leading().size(1), 1);
  };
  const bool onehot =
      std::holds_alternative<OneHot>(f.form_) && std::holds_alternative<OneHot>(g.form_);
  const bool possible =
      onehot || (factored(f) && factored(g) && groups(f) == groups(g) && columns(f) == columns(g));
  const bool wanted =
      norm_method == NormMethod::ghost ||
      (norm_method == NormMethod::automatic && f.times().gram_norm <= f.times().rows_norm);
  return possible && wanted;
}

Tensor PerSampleGrad::product(const PerSampleGrad& f, const PerSampleGrad& g,
                              NormMethod norm_method, const Tensor& needs_f64) {
  check(f.samples() == g.samples() && f.shape() == g.shape() && f.dtype() == g.dtype(),
        "dot: {} samples of {} and {} of {}", f.samples(), f.shape(), g.samples(), g.shape());
  return by_gram(f, g, norm_method) ? gram(f, g) : by_rows(f, g, needs_f64);
}

Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method) {
  return PerSampleGrad::product(f, g, norm_method, {});
}

}  // namespace sotto
