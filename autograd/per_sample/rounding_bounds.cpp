#include "autograd/per_sample/rounding_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/weighted_sum_bf16.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// In a sum with other samples, the norms of a clipped gradient's terms may add up to
// max_cancellation times the clip bound, or, for few positions T, to max_cancellation_of_few
// sqrt(T) times.
constexpr double max_cancellation = 64, max_cancellation_of_few = 8;

// Convolutions summed by Winograd tiles err by up to 9 * 2^-23 |dy| |x|, even for one tile (found
// by a search); direct sums err by less than 2^-23 |dy| |x|. Winograd needs a 3 x 3 window, whose
// bound is 3 sqrt(T) 2^-23 |dy| |x|: with at least this many positions T it is more than twice the
// error.
constexpr double min_tiled_positions = 64;
// Values beyond it may overflow within a tile although no result of the tile does.
constexpr double max_tiled = 0x1p100;

double unit_roundoff(const Form& f) { return f.dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23; }

// True if a backend may sum the convolution by Winograd tiles.
bool sums_by_tiles(const Form& form) {
  const auto* f = form.as<Patches>();
  return f && f->window.suits_tiles() && form.dtype() == Dtype::f32;
}

// The terms of each sample: the products b[t] a[t] that its gradient sums.
struct Terms {
  Tensor norms;             // [n]: sum_t |b[t]| |a[t]|, or an upper bound
  Tensor roots;             // [n]: sqrt(T), for the T terms that are not 0
  double max_cancellation;  // 0 where `norms` is only an upper bound
  // [n]: squared norms of an outer form's factors.
  Tensor a_squares = {}, b_squares = {};
};

// The squared norms [n, t] of x [n, t, k].
Tensor position_squares(const Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1);
  return reshape(squared_norms(reshape(x, {n * t, x.size(2)})), {n, t});
}

Tensor is_positive(const Tensor& x) {
  return binary(binary_index<functors::Greater>, x, zeros({}, Dtype::f64, x.device()));
}

// Square roots of the counts of marks [n, t].
Tensor root_counts(const Tensor& marks) { return square_root(sum(marks, {1})); }

// `roots` for every sample of x, [n].
Tensor equal_roots(const Tensor& x, double roots) {
  return full({x.size(0)}, roots, Dtype::f64, x.device());
}

Terms terms_of(const Outer& f) {
  const Tensor a = position_squares(f.a),
               b = f.squares.defined() ? f.squares : position_squares(f.b),
               norms = mul(square_root(b), square_root(a));
  return {sum(norms, {1}), root_counts(is_positive(norms)), max_cancellation, sum(a, {1}),
          sum(b, {1})};
}

Terms terms_of(const OneHot& f) {
  const bool repeats = f.b.size(1) == 1;
  Tensor marks;  // undefined: every position is a term
  if (f.gaps) {
    const Tensor zero = zeros({}, Dtype::f64, f.b.device());
    marks = binary(binary_index<functors::GreaterEqual>, to_dtype(f.ids, Dtype::f64), zero);
  }
  if (!repeats) {
    const Tensor positive = is_positive(position_squares(f.b));
    marks = marks.defined() ? mul(marks, positive) : positive;
  }
  const Tensor roots =
      marks.defined() ? root_counts(marks) : equal_roots(f.b, std::sqrt(f.positions()));
  const Tensor norms = square_root(squared_norms(f.b));
  return {repeats ? mul(norms, roots) : norms, roots, 0};
}

// Positions that only pad a sample to the length of the batch's longest are no terms: a bound must
// not depend on the other samples of the batch.
Terms terms_of(const Form& form) {
  if (const auto* f = form.as<Outer>()) return terms_of(*f);
  if (const auto* f = form.as<OneHot>()) return terms_of(*f);
  return {square_root(squared_norms(form.leading())), equal_roots(form.leading(), 1),
          max_cancellation};
}

// Adds to `error_bounds` the error that underflow may cause in a gradient of two factors, from the
// squared norms of a, and of b (undefined: no Gram products). Gram products may lose u, the
// smallest normal number, per term of an element, and so the norm sqrt(u T) (sqrt(i) |b| + sqrt(o)
// |a|). Scaling rounds each element of a factor by up to 2^-150, half the smallest number, and so
// the sum by w 2^-50 sqrt(T o) |a|, since weights w are at least 2^-100 (GradientNorm::factor);
// this is the larger error. Winograd tiles round such numbers some ten times more and add up to ten
// of these errors in a result: their bound is 64 times as large.
void add_underflow(const Form& form, Tensor& error_bounds, const Tensor& a, const Tensor& b) {
  std::int64_t inner = 0, outer = 0, repeats = 1;
  if (const auto* f = form.as<Outer>()) {
    inner = f->a.size(2), outer = f->b.size(2);
  } else if (const auto* p = form.as<Patches>()) {
    inner = p->x.size(1), outer = p->dy.size(1);
    repeats = p->window.positions();  // a pixel lies in at most this many patches
  }
  const auto lose = [&](double unit, std::int64_t terms, const Tensor& squares) {
    const double times = unit * std::sqrt(form.positions() * static_cast<double>(terms * repeats));
    if (error_bounds.defined())
      axpby(times, square_root(squares), 1, error_bounds);
    else
      error_bounds = scale(square_root(squares), times);
  };
  const bool f64 = form.dtype() == Dtype::f64;
  const double scaled = sums_by_tiles(form) ? 0x1p-43 : 0x1p-49;
  lose(f64 ? 0x1p-511 : scaled, outer, a);
  if (b.defined()) lose(f64 ? 0x1p-511 : 0x1p-63, inner, b);
}

// The bounds of outer, onehot and dense forms.
NormEstimate term_bounds(const Form& form) {
  const Terms terms = terms_of(form);
  NormEstimate y;
  y.error_bounds = scale(mul(terms.norms, terms.roots), unit_roundoff(form));
  if (is_split_into_bf16(form)) axpby(bf16x2_rounding, terms.norms, 1, y.error_bounds);
  // The norms of T terms of random directions add up to sqrt(T) times the norm of their sum.
  const auto number = [&](double x) { return full({}, x, Dtype::f64, terms.norms.device()); };
  const Tensor few = scale(binary(binary_index<functors::Maximum>, terms.roots, number(1)),
                           max_cancellation_of_few);
  const Tensor tolerated =
      binary(binary_index<functors::Minimum>, few, number(std::max(terms.max_cancellation, 4.0)));
  y.term_norms = binary(binary_index<functors::Div>, terms.norms,
                        binary(binary_index<functors::Maximum>, scale(terms.roots, 4), tolerated));
  if (terms.a_squares.defined())
    add_underflow(form, y.error_bounds, terms.a_squares, terms.b_squares);
  return y;
}

}  // namespace

NormEstimate conv_rounding_bounds(const Form& f, const Tensor& dy_squares,
                                  const Tensor& x_squares) {
  const auto windows = static_cast<double>(f.as<Patches>()->window.overlap());
  const Tensor norms = square_root(mul(dy_squares, scale(x_squares, windows)));
  const double roots = std::sqrt(f.positions());
  const bool tiles = sums_by_tiles(f);
  const double min_roots = tiles ? std::sqrt(min_tiled_positions) : 0;
  NormEstimate y;
  y.error_bounds = scale(norms, unit_roundoff(f) * std::max(roots, min_roots) +
                                    (is_split_into_bf16(f) ? bf16x2_rounding : 0));
  y.term_norms = scale(
      norms, 1 / std::max(std::min(max_cancellation_of_few * roots, max_cancellation), 4 * roots));
  if (tiles && x_squares.device() == cpu) {  // no other backend sums by tiles
    const Tensor max_squares = full({}, max_tiled * max_tiled, Dtype::f64);
    for (const Tensor& squares : {dy_squares, x_squares}) {
      const Tensor beyond = binary(binary_index<functors::Greater>, squares, max_squares);
      axpby(std::numeric_limits<double>::max(), beyond, 1, y.term_norms);
    }
  }
  add_underflow(f, y.error_bounds, x_squares, dy_squares);
  return y;
}

NormEstimate single_product_bounds(const Form& f, const Tensor& a_squares) {
  NormEstimate y;
  add_underflow(f, y.error_bounds, a_squares, {});
  return y;
}

bool rounds_once(const PerSampleGrad& use) {
  return !use.inherited().error_bounds.defined() && use.form_data().positions() <= 1 &&
         !use.form_data().as<Patches>() && !is_split_into_bf16(use.form_data());
}

NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use) {
  if (use.inherited().error_bounds.defined()) return use.inherited();
  const Form& form = use.form_data();
  if (const auto* f = form.as<Patches>())
    return conv_rounding_bounds(form, squared_image_norms(f->dy), squared_image_norms(f->x));
  if (!only_use || !rounds_once(use)) return term_bounds(form);
  const auto* f = form.as<Outer>();
  return f ? single_product_bounds(form, squared_norms(f->a)) : NormEstimate{};
}

NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses) {
  NormEstimate y;
  const auto add_to = [](Tensor& total, const Tensor& part) {
    if (part.defined()) total = total.defined() ? add(total, part) : part;
  };
  for (const PerSampleGrad& use : uses) {
    const NormEstimate bounds = rounding_bounds(use, uses.size() == 1);
    add_to(y.error_bounds, bounds.error_bounds);
    add_to(y.term_norms, bounds.term_norms);
  }
  return y;
}

}  // namespace sotto::detail
