// Inner products of per-sample gradients, and the choice between Gram products and rows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sotto/autograd/per_sample.h"
#include "sotto/kernels/compute.h"

namespace sotto {

namespace {

// What a chunk of samples may take where rows or patches are only passed through.
constexpr std::size_t chunk_bytes = std::size_t{16} << 20;

// A row's rounding in float is about 2^-24 of the product of its factors' norms. Below this share
// of that product it could show in the fifth digit of the row's norm.
constexpr double cancellation_share = 0.005;

// [n], the squared norm of each sample of x.
std::vector<double> squared_norms(const Tensor& x) {
  const std::int64_t n = x.size(0);
  Tensor y = Tensor::empty({n}, Dtype::f64, x.device());
  const Tensor rows = reshape(contiguous(x), {n, n == 0 ? 0 : x.numel() / n});
  backend(x.device()).row_dot(rows.view(), rows.view(), y.view());
  return y.to_vector<double>();
}

std::int64_t chunk_samples(std::size_t bytes_per_sample) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(chunk_bytes / std::max<std::size_t>(bytes_per_sample, 1)));
}

struct GramTimes {
  double pixels, patches;
};

// What the Gram products of a convolution's pixels take for one sample, or infinity where there are
// none, and those of its patches, which are written out and read.
GramTimes gram_times(const Geometry& g, std::size_t element, const Costs& costs) {
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
PerSample PerSample::factors(const PerSample& f, std::int64_t group) {
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
Tensor PerSample::gram_of_parts(const PerSample& f, const PerSample& g) {
  Tensor y = Tensor::empty({f.samples()}, Dtype::f64, f.leading().device());
  const PerSample &lead = f.narrow() ? f : g, &other = f.narrow() ? g : f;
  lead.for_each_part([&](const PerSample& part, std::int64_t begin, std::int64_t end) {
    copy_into(gram(part, other.slice(begin, end).in_type(f.dtype())), y.slice(0, begin, end));
  });
  return y;
}

// Sample-wise Gram products of outer and patches forms, or of two onehot forms.
Tensor PerSample::gram(const PerSample& f, const PerSample& g) {
  const std::int64_t n = f.samples();
  Tensor y = zeros({n}, Dtype::f64, f.leading().device());
  Backend& device = backend(y.device());
  if (f.factor_type() != g.factor_type() || !f.factor_type()) return gram_of_parts(f, g);
  if (const auto* u = std::get_if<OneHot>(&f.form_)) {
    const auto& v = std::get<OneHot>(g.form_);
    device.onehot_dot(u->ids.view(), u->b.view(), v.ids.view(), v.b.view(), y.view());
    return y;
  }
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
      const PerSample left = factors(f.slice(at, end), group);
      const PerSample right = &f == &g ? left : factors(g.slice(at, end), group);
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

// The samples whose row is so much smaller than its factors that the rounding of the row shows, by
// the squared norms of both.
std::vector<std::int64_t> cancelled(const std::vector<double>& rows,
                                    const std::vector<double>& factors) {
  std::vector<std::int64_t> ids;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (rows[n] < cancellation_share * cancellation_share * factors[n]) {
      ids.push_back(static_cast<std::int64_t>(n));
    }
  }
  return ids;
}

// In how many patches a pixel lies at most.
double overlap(const Window& window) {
  double repeats = 1;
  for (int i = 0; i < 3; ++i) {
    repeats *=
        std::ceil(static_cast<double>(window.kernel[i]) / static_cast<double>(window.stride[i]));
  }
  return repeats;
}

}  // namespace

// An upper bound of the squared norm of each row, from the factors' norms alone.
std::vector<double> PerSample::bounds() const {
  if (std::holds_alternative<Dense>(form_))
    return std::vector<double>(static_cast<std::size_t>(samples()));
  double repeats = 1;
  std::vector<double> b, a;
  if (const auto* f = std::get_if<OneHot>(&form_)) {
    b = squared_norms(f->b);
    for (double& norm : b)
      norm *= static_cast<double>(f->ids.size(1)) /
              static_cast<double>(std::max<std::int64_t>(1, f->b.size(1)));
    return b;
  }
  if (const auto* f = std::get_if<Patches>(&form_)) {
    const auto last = [](const Tensor& x) { return x.permute({0, 2, 3, 4, 1}); };
    b = squared_norms(last(f->dy));
    a = squared_norms(last(f->x));
    repeats = overlap(f->window);
  } else {
    b = squared_norms(std::get<Outer>(form_).b);
    a = squared_norms(std::get<Outer>(form_).a);
  }
  for (std::size_t n = 0; n < b.size(); ++n) b[n] *= repeats * a[n];
  return b;
}

// One sample at a time, so that none depends on which others are computed again.
void PerSample::dot_again(const PerSample& f, const PerSample& g,
                          const std::vector<std::int64_t>& ids, const Tensor& y) {
  for (const std::int64_t id : ids) {
    const PerSample p = f.slice(id, id + 1).wide();
    copy_into(&f == &g ? by_rows(p, p) : by_rows(p, g.slice(id, id + 1).wide()),
              y.slice(0, id, id + 1));
  }
}

// The norms of a convolution's rows, none of which is written; and bounds(), which costs no more.
Tensor PerSample::row_norms(const PerSample& f, std::vector<double>* bounds) {
  const auto& p = std::get<Patches>(f.form_);
  const Tensor both = conv_weight_norms(p.dy, p.x, p.window);
  Tensor y = contiguous(both.select(1, 0));
  std::vector<double> factors = both.select(1, 1).to_vector<double>();
  for (double& norm : factors) norm *= overlap(p.window);
  if (f.dtype() != Dtype::f64) dot_again(f, f, cancelled(y.to_vector<double>(), factors), y);
  if (bounds) *bounds = std::move(factors);
  return y;
}

Tensor PerSample::by_rows(const PerSample& f, const PerSample& g) {
  if (&f == &g && std::holds_alternative<Patches>(f.form_)) return row_norms(f);
  const std::int64_t n = f.samples();
  const std::int64_t width = f.shape_.numel();
  const bool exact = f.dtype() == Dtype::f64;
  Tensor y = Tensor::empty({n}, Dtype::f64, f.leading().device());
  const std::int64_t step = chunk_samples(static_cast<std::size_t>(width) * size_of(f.dtype()));
  for (std::int64_t at = 0; at < n; at += step) {
    const std::int64_t end = std::min(n, at + step);
    const PerSample left = f.slice(at, end), right = g.slice(at, end);
    const Tensor u = reshape(left.materialize(), {end - at, width});
    const Tensor v = &f == &g ? u : reshape(right.materialize(), {end - at, width});
    const Tensor part = y.slice(0, at, end);
    backend(y.device()).row_dot(u.view(), v.view(), part.view());
    if (exact) continue;
    if (&f == &g) {
      dot_again(left, left, cancelled(part.to_vector<double>(), left.bounds()), part);
    } else {
      dot_again(left, right, cancelled(squared_norms(u), left.bounds()), part);
      dot_again(left, right, cancelled(squared_norms(v), right.bounds()), part);
    }
  }
  return y;
}

// With one position a linear layer's norm is the product of its factors' norms.
PerSample::Times PerSample::times() const {
  const Costs costs = backend(leading().device()).costs();
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

PerSample PerSample::prepared(Route route, std::size_t budget) const {
  if (std::holds_alternative<Dense>(form_) || row_bytes() > budget) return *this;
  const Times t = times();
  // Whoever computes in 16 bits does so for bytes.
  const std::size_t factors =
      static_cast<std::size_t>(factor_values()) * size_of(leading().dtype());
  const bool cheaper = t.kept_rows < std::min(t.rows_norm, t.gram_norm) + t.sum &&
                       !(narrow() && row_bytes() > factors);
  const bool rows = route == Route::rows || (route == Route::automatic && cheaper);
  return rows ? dense(materialize()) : *this;
}

// Whether an inner product is taken by the factors.
bool PerSample::by_gram(const PerSample& f, const PerSample& g, Route route) {
  const auto factored = [](const PerSample& p) {
    return std::holds_alternative<Outer>(p.form_) || std::holds_alternative<Patches>(p.form_);
  };
  const auto groups = [](const PerSample& p) {
    const auto* patches = std::get_if<Patches>(&p.form_);
    return patches ? patches->window.groups : 1;
  };
  const auto columns = [](const PerSample& p) {
    const auto* outer = std::get_if<Outer>(&p.form_);
    return outer ? outer->a.size(2)
                 : p.shape_.numel() / std::max<std::int64_t>(p.leading().size(1), 1);
  };
  const bool onehot =
      std::holds_alternative<OneHot>(f.form_) && std::holds_alternative<OneHot>(g.form_);
  const bool possible =
      onehot || (factored(f) && factored(g) && groups(f) == groups(g) && columns(f) == columns(g));
  const bool wanted = route == Route::gram ||
                      (route == Route::automatic && f.times().gram_norm <= f.times().rows_norm);
  return possible && wanted;
}

Tensor dot(const PerSample& f, const PerSample& g, Route route) {
  check(f.samples() == g.samples() && f.shape() == g.shape() && f.dtype() == g.dtype(),
        "dot: {} samples of {} and {} of {}", f.samples(), f.shape(), g.samples(), g.shape());
  return PerSample::by_gram(f, g, route) ? PerSample::gram(f, g) : PerSample::by_rows(f, g);
}

// What sum_t |b[t]| |a[t]| is at most.
std::vector<double> PerSample::magnitudes() const {
  std::vector<double> y;
  if (const auto* f = std::get_if<Outer>(&form_)) {
    const std::int64_t n = f->b.size(0), t = f->b.size(1);
    const auto by_position = [&](const Tensor& x) {
      return squared_norms(reshape(contiguous(x), {n * t, x.size(2)}));
    };
    const std::vector<double> b = by_position(f->b), a = by_position(f->a);
    y.assign(static_cast<std::size_t>(n), 0);
    for (std::size_t k = 0; k < b.size(); ++k)
      y[k / static_cast<std::size_t>(t)] += std::sqrt(b[k]) * std::sqrt(a[k]);
    return y;
  }
  const auto* rows = std::get_if<Dense>(&form_);
  y = rows ? squared_norms(rows->rows) : bounds();
  for (double& value : y) value = std::sqrt(value);
  return y;
}

double PerSample::positions() const {
  if (const auto* f = std::get_if<Outer>(&form_)) return static_cast<double>(f->b.size(1));
  if (const auto* f = std::get_if<OneHot>(&form_)) return static_cast<double>(f->ids.size(1));
  if (const auto* f = std::get_if<Patches>(&form_))
    return static_cast<double>(f->dy.size(2) * f->dy.size(3) * f->dy.size(4));
  return 1;
}

// What a magnitude of one may lose.
double PerSample::rounding_unit() const {
  return (dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23) * std::sqrt(positions());
}

std::vector<double> PerSample::rounding_errors(const std::vector<PerSample>& uses) {
  std::vector<double> errors(static_cast<std::size_t>(uses[0].samples()));
  for (const PerSample& use : uses) {
    // One product for each element is rounded with its last place only.
    if (uses.size() == 1 && use.positions() <= 1) continue;
    const std::vector<double> magnitudes = use.magnitudes();
    for (std::size_t n = 0; n < errors.size(); ++n)
      errors[n] += use.rounding_unit() * magnitudes[n];
  }
  return errors;
}

// The norm of the sum of one sample's gradients, by its definition and in double.
double PerSample::squared_norm_again(const std::vector<PerSample>& uses, std::int64_t sample) {
  std::vector<double> total(static_cast<std::size_t>(uses[0].shape_.numel()));
  for (const PerSample& use : uses) {
    const Tensor row = use.slice(sample, sample + 1).wide().materialize();
    const std::vector<double> values = row.to_vector<double>();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  return std::inner_product(total.begin(), total.end(), total.begin(), 0.0);
}

Tensor squared_norm(const std::vector<PerSample>& uses, Route route, std::vector<double>* errors) {
  check(!uses.empty(), "squared_norm: a parameter without a use");
  const PerSample& first = uses[0];
  const bool single = uses.size() == 1;
  if (single && errors && std::holds_alternative<PerSample::Patches>(first.form_) &&
      !PerSample::by_gram(first, first, route)) {
    const Tensor y = PerSample::row_norms(first, errors);
    for (double& error : *errors) error = first.rounding_unit() * std::sqrt(error);
    return y;
  }
  if (errors) *errors = PerSample::rounding_errors(uses);
  if (single) return dot(first, first, route);
  // Below this share of what it would be if all uses pointed one way, the rounding of the inner
  // products could show in the fifth digit.
  constexpr double least_share = 0.02;
  std::vector<double> total(static_cast<std::size_t>(uses[0].samples())), most(total.size());
  const auto add = [&](const PerSample& f, const PerSample& g, double times) {
    const std::vector<double> products = dot(f, g, route).to_vector<double>();
    for (std::size_t n = 0; n < total.size(); ++n) total[n] += times * products[n];
    return products;
  };
  for (std::size_t u = 0; u < uses.size(); ++u) {
    const std::vector<double> own = add(uses[u], uses[u], 1);
    for (std::size_t n = 0; n < most.size(); ++n) most[n] += std::sqrt(own[n]);
    for (std::size_t v = 0; v < u; ++v) add(uses[u], uses[v], 2);
  }
  for (std::size_t n = 0; n < total.size(); ++n) {
    if (total[n] >= least_share * most[n] * most[n]) continue;
    total[n] = PerSample::squared_norm_again(uses, static_cast<std::int64_t>(n));
  }
  return Tensor::from(total, {static_cast<std::int64_t>(total.size())});
}

}  // namespace sotto
