// Norms of whole parameters' per-sample gradients, and what rounding may add to them.
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/per_sample/per_sample.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {
namespace {

// So many times its clipped gradient a sample's terms may be in a sum with those of others.
constexpr double min_cancelled = 64, of_few_terms = 8;

// Sums of convolutions by tiles (Winograd) lose up to nine times 2^-23 |dy| |x|, as a search found,
// even of one tile; a direct sum, not one. For windows of 3 x 3, with 3 |dy| |x|, so many positions
// have room for more than twice that.
constexpr double min_tiled_positions = 64;
// Numbers beyond it may overflow in a tile although none of its results does.
constexpr double longest_tiled = 0x1p100;

}  // namespace

Tensor PerSampleGrad::root(const Tensor& x) { return unary(unary_index<Sqrt>, x); }

// What is known of the terms of each sample's gradient: outer forms, tables, and rows. Positions
// that others of the batch have and a sample has not, its padding, do not count: nothing may depend
// on who else is in the batch.
PerSampleGrad::Terms PerSampleGrad::terms_of_samples() const {
  const Tensor zero = zeros({}, Dtype::f64, leading().device());
  const auto squares = [](const Tensor& x) {
    const std::int64_t n = x.size(0), t = x.size(1);
    return reshape(squared_norms(reshape(x, {n * t, x.size(2)})), {n, t});
  };
  const auto total = [](const Tensor& x) { return sotto::sum(x, {1}); };
  const auto count = [&](const Tensor& marks) { return root(total(marks)); };
  const auto alike = [&](double roots) {
    return full({samples()}, roots, Dtype::f64, leading().device());
  };
  if (const auto* f = std::get_if<Outer>(&form_)) {
    const Tensor a = squares(f->a), b = f->squares.defined() ? f->squares : squares(f->b),
                 lengths = mul(root(b), root(a));
    return {total(lengths), count(binary(binary_index<Greater>, lengths, zero)), min_cancelled,
            total(a), total(b)};
  }
  if (const auto* f = std::get_if<OneHot>(&form_)) {
    const bool repeats = f->b.size(1) == 1;
    Tensor there;  // where not all positions need be
    if (f->gaps) there = binary(binary_index<GreaterEqual>, to_dtype(f->ids, Dtype::f64), zero);
    if (!repeats) {
      const Tensor some = binary(binary_index<Greater>, squares(f->b), zero);
      there = there.defined() ? mul(there, some) : some;
    }
    const Tensor roots = there.defined() ? count(there) : alike(std::sqrt(positions()));
    const Tensor lengths = root(squared_norms(f->b));
    return {repeats ? mul(lengths, roots) : lengths, roots, 0};
  }
  return {root(squared_norms(std::get<Dense>(form_).rows)), alike(1), min_cancelled};
}

// The errors and shares of one use.
NormEstimate PerSampleGrad::of_terms() const {
  const auto [lengths, roots, min, of_a, of_b] = terms_of_samples();
  NormEstimate y;
  y.error_bounds = scale(mul(lengths, roots), last_place());
  if (scaled_in_pieces()) axpby(bf16x2_rounding, lengths, 1, y.error_bounds);
  // How many times the clipped gradient the terms may be: without a common direction they are
  // sqrt(T) times their sum.
  const auto number = [device = lengths.device()](double x) {
    return full({}, x, Dtype::f64, device);
  };
  const Tensor few = scale(binary(binary_index<Maximum>, roots, number(1)), of_few_terms);
  const Tensor usual = binary(binary_index<Minimum>, few, number(std::max(min, 4.0)));
  y.term_norms =
      binary(binary_index<Div>, lengths, binary(binary_index<Maximum>, scale(roots, 4), usual));
  if (of_a.defined()) add_underflow(y.error_bounds, of_a, of_b);
  return y;
}

// The same of a convolution, by the squared norms of its factors.
NormEstimate PerSampleGrad::of_images(const Tensor& dy, const Tensor& x) const {
  const auto windows = static_cast<double>(std::get<Patches>(form_).window.overlap());
  const Tensor lengths = root(mul(dy, scale(x, windows)));
  const double roots = std::sqrt(positions());
  const double min = by_tiles() ? std::sqrt(min_tiled_positions) : 0;
  NormEstimate y;
  y.error_bounds = scale(
      lengths, last_place() * std::max(roots, min) + (scaled_in_pieces() ? bf16x2_rounding : 0));
  y.term_norms =
      scale(lengths, 1 / std::max(std::min(of_few_terms * roots, min_cancelled), 4 * roots));
  if (by_tiles() && x.device() == cpu) {  // which alone has tiles
    const Tensor max = full({}, longest_tiled * longest_tiled, Dtype::f64, x.device());
    for (const Tensor& squares : {dy, x}) {
      const Tensor longer = binary(binary_index<Greater>, squares, max);
      axpby(std::numeric_limits<double>::max(), longer, 1, y.term_norms);
    }
  }
  add_underflow(y.error_bounds, x, dy);
  return y;
}

// Whether a backend may sum it by tiles.
bool PerSampleGrad::by_tiles() const {
  const auto* f = std::get_if<Patches>(&form_);
  return f && f->window.suits_tiles() && dtype() == Dtype::f32;
}

double PerSampleGrad::positions() const {
  if (const auto* f = std::get_if<Outer>(&form_)) return static_cast<double>(f->b.size(1));
  if (const auto* f = std::get_if<OneHot>(&form_)) return static_cast<double>(f->ids.size(1));
  if (const auto* f = std::get_if<Patches>(&form_))
    return static_cast<double>(f->dy.size(2) * f->dy.size(3) * f->dy.size(4));
  return 1;
}

double PerSampleGrad::last_place() const { return dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23; }

// Adds what underflow may add to the norm of a gradient of two factors, by the squared norms of a,
// and of b where there are Gram products. Those may lose u, the smallest normal number, for each of
// an element's terms, and the norm sqrt(u T) (sqrt(i) |b| + sqrt(o) |a|). And what a weight scales
// is rounded by half the smallest number, 2^-150, each, and the sum by w 2^-50 sqrt(T o) |a| for
// the weights w of 2^-100 or more that there are (GradientNorm::factor), which is the larger.
// Tiles round what they make of such numbers once more, some ten times, each of which their results
// have up to ten times: 64 times as much.
void PerSampleGrad::add_underflow(Tensor& error_bounds, const Tensor& a, const Tensor& b) const {
  std::int64_t inner = 0, outer = 0, repeats = 1;
  if (const auto* f = std::get_if<Outer>(&form_)) {
    inner = f->a.size(2), outer = f->b.size(2);
  } else if (const auto* p = std::get_if<Patches>(&form_)) {
    inner = p->x.size(1), outer = p->dy.size(1);
    repeats = p->window.positions();  // a pixel lies in a patch at most once for each
  }
  const auto lose = [&](double unit, std::int64_t terms, const Tensor& squares) {
    const double times = unit * std::sqrt(positions() * static_cast<double>(terms * repeats));
    if (error_bounds.defined())
      axpby(times, root(squares), 1, error_bounds);
    else
      error_bounds = scale(root(squares), times);
  };
  const bool wide = dtype() == Dtype::f64;
  const double rounded = by_tiles() ? 0x1p-43 : 0x1p-49;
  lose(wide ? 0x1p-511 : rounded, outer, a);
  if (b.defined()) lose(wide ? 0x1p-511 : 0x1p-63, inner, b);
}

// The errors and shares of one use, which may be the only one.
NormEstimate PerSampleGrad::rounding(bool alone) const {
  if (known_.error_bounds.defined()) return known_;
  if (const auto* f = std::get_if<Patches>(&form_)) {
    const auto last = [](const Tensor& x) { return squared_norms(x.permute({0, 2, 3, 4, 1})); };
    return of_images(last(f->dy), last(f->x));
  }
  // One product for each element is rounded with its last place only.
  if (!alone || positions() > 1 || scaled_in_pieces()) return of_terms();
  NormEstimate y;
  if (const auto* f = std::get_if<Outer>(&form_))
    add_underflow(y.error_bounds, squared_norms(f->a), {});
  return y;
}

void PerSampleGrad::add_rounding(const std::vector<PerSampleGrad>& uses, NormEstimate& y) {
  const auto onto = [](Tensor& sum, const Tensor& part) {
    if (part.defined()) sum = sum.defined() ? add(sum, part) : part;
  };
  for (const PerSampleGrad& use : uses) {
    const NormEstimate terms = use.rounding(uses.size() == 1);
    onto(y.error_bounds, terms.error_bounds);
    onto(y.term_norms, terms.term_norms);
  }
}

// The sum of one sample's gradients, by its definition and in double.
std::vector<double> PerSampleGrad::gradient_again(const std::vector<PerSampleGrad>& uses,
                                                  std::int64_t sample) {
  std::vector<double> total(static_cast<std::size_t>(uses[0].shape_.numel()));
  for (const PerSampleGrad& use : uses) {
    const Tensor row = use.slice(sample, sample + 1).wide().materialize();
    const std::vector<double> values = row.to_vector<double>();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  return total;
}

// Of a parameter that is used several times: all pairs' inner products.
Tensor PerSampleGrad::norm_of_uses(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                                   const Tensor& needs_f64) {
  // Below this share of what it would be if all uses pointed one way, the rounding of the inner
  // products could show in the fifth digit.
  constexpr double min_share = 0.02;
  const Tensor total = zeros({uses[0].samples()}, Dtype::f64, uses[0].leading().device());
  const Tensor max = zeros_like(total);
  for (std::size_t u = 0; u < uses.size(); ++u) {
    const Tensor own = product(uses[u], uses[u], norm_method, needs_f64);
    axpby(1, own, 1, total);
    axpby(1, root(own), 1, max);
    for (std::size_t v = 0; v < u; ++v)
      axpby(2, product(uses[u], uses[v], norm_method, needs_f64), 1, total);
  }
  // Not 0 either where one is NaN, so that it is not known to be enough.
  const Tensor min = mul(scale(max, min_share), max);
  const Tensor unsound = binary(binary_index<Greater>, min, total);
  if (needs_f64.defined()) {
    axpby(1, unsound, 1, needs_f64);
    return total;
  }
  const std::vector<double> again = unsound.to_vector<double>();
  for (std::int64_t n = 0; n < std::ssize(again); ++n) {
    if (again[static_cast<std::size_t>(n)] == 0) continue;
    const std::vector<double> g = gradient_again(uses, n);
    const double square = std::inner_product(g.begin(), g.end(), g.begin(), 0.0);
    copy_into(full({}, square, Dtype::f64), total.slice(0, n, n + 1));
  }
  return total;
}

// Without `wait` what would be computed again is in doubt.
NormEstimate PerSampleGrad::terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                                  bool wait) {
  check(!uses.empty(), "squared_norm: a parameter without a use");
  const PerSampleGrad& first = uses[0];
  const bool single = uses.size() == 1, gram = single && by_gram(first, first, norm_method);
  const bool certain = gram || (single && std::holds_alternative<Dense>(first.form_));
  NormEstimate y;
  if (!wait && !certain)
    y.needs_f64 = zeros({first.samples()}, Dtype::f64, first.leading().device());
  if (single && !gram && std::holds_alternative<Patches>(first.form_)) {
    y.squares = row_norms(first, y.needs_f64, &y);
    return y;
  }
  const auto* f = std::get_if<Outer>(&first.form_);
  const bool product_alone = first.positions() <= 1 && !first.known_.error_bounds.defined();
  if (gram && f && product_alone && !first.scaled_in_pieces()) {
    const Tensor a = squared_norms(f->a);
    y.squares = mul(a, squared_norms(f->b));
    first.add_underflow(y.error_bounds, a, {});
    return y;
  }
  add_rounding(uses, y);
  if (single && first.known_.squares.defined()) {
    y.squares = first.known_.squares;
    return y;
  }
  y.squares = single ? product(first, first, norm_method, y.needs_f64)
                     : norm_of_uses(uses, norm_method, y.needs_f64);
  return y;
}

NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method) {
  return PerSampleGrad::terms(uses, norm_method, false);
}

Tensor squared_norm(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                    NormErrorBounds* more) {
  const NormEstimate terms = PerSampleGrad::terms(uses, norm_method, true);
  if (more) {
    const auto numbers = [&](const Tensor& x) {
      if (x.defined()) return x.to_vector<double>();
      return std::vector<double>(static_cast<std::size_t>(uses[0].samples()));
    };
    *more = {numbers(terms.error_bounds), numbers(terms.term_norms)};
  }
  return terms.squares;
}

Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                           double weight) {
  std::vector<double> values = PerSampleGrad::gradient_again(uses, sample);
  for (double& value : values) value *= weight;
  return to_dtype(Tensor::from(values, uses[0].shape_), arithmetic_type(uses[0].dtype()))
      .to(uses[0].leading().device());
}

}  // namespace sotto
