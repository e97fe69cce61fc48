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

// The terms of a clipped gradient may be so many times as long as the clip bound in a sum with
// those of other samples: max_cancellation, or this much times sqrt(T) for few positions.
constexpr double max_cancellation = 64, max_cancellation_of_few = 8;

// Sums of convolutions by tiles (Winograd) lose up to nine times 2^-23 |dy| |x|, as a search found,
// even of one tile; a direct sum, not one. For windows of 3 x 3, with 3 |dy| |x|, so many positions
// have room for more than twice that.
constexpr double min_tiled_positions = 64;
// Numbers beyond it may overflow in a tile although none of its results does.
constexpr double max_tiled = 0x1p100;

double unit_roundoff(const Form& f) { return f.dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23; }

// Whether a backend may sum a convolution by tiles.
bool sums_by_tiles(const Form& form) {
  const auto* f = form.as<Patches>();
  return f && f->window.suits_tiles() && form.dtype() == Dtype::f32;
}

// Each sample's terms, the products b[t] a[t] that its gradient sums.
struct Terms {
  Tensor norms;             // [n]: sum_t |b[t]| |a[t]|, or an upper bound
  Tensor roots;             // [n]: sqrt(T), for the T terms that are not 0
  double max_cancellation;  // 0 where `norms` is only an upper bound
  // [n]: squared norms of an outer form's factors.
  Tensor a_squares = {}, b_squares = {};
};

// [n, t] of x [n, t, k].
Tensor position_squares(const Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1);
  return reshape(squared_norms(reshape(x, {n * t, x.size(2)})), {n, t});
}

Tensor is_positive(const Tensor& x) {
  return binary(binary_index<functors::Greater>, x, zeros({}, Dtype::f64, x.device()));
}

// Square roots of the counts of marks [n, t].
Tensor root_counts(const Tensor& marks) { return square_root(sum(marks, {1})); }

// The same for every sample of x.
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

// Positions that other samples of the batch have and this one has not, its padding, are no terms:
// no bound may depend on who else is in the batch.
Terms terms_of(const Form& form) {
  if (const auto* f = form.as<Outer>()) return terms_of(*f);
  if (const auto* f = form.as<OneHot>()) return terms_of(*f);
  return {square_root(squared_norms(form.leading())), equal_roots(form.leading(), 1),
          max_cancellation};
}

// Adds to `error_bounds` what underflow may add to the norm of a gradient of two factors, from the
// squared norms of a, and of b where there are Gram products. Those may lose u, the smallest normal
// number, for each of an element's terms, and the norm sqrt(u T) (sqrt(i) |b| + sqrt(o) |a|). A
// scaled factor is rounded by half the smallest number, 2^-150, in each element, and the sum by
// w 2^-50 sqrt(T o) |a| for the weights w of 2^-100 or more that there are (GradientNorm::factor),
// which is the larger. Tiles round what they make of such numbers once more, some ten times, each
// of which their results have up to ten times: 64 times as much.
void add_underflow(const Form& form, Tensor& error_bounds, const Tensor& a, const Tensor& b) {
  std::int64_t inner = 0, outer = 0, repeats = 1;
  if (const auto* f = form.as<Outer>()) {
    inner = f->a.size(2), outer = f->b.size(2);
  } else if (const auto* p = form.as<Patches>()) {
    inner = p->x.size(1), outer = p->dy.size(1);
    repeats = p->window.positions();  // a pixel lies in a patch at most once for each
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
  // Terms without a common direction are sqrt(T) times as long as their sum.
  const auto number = [&](double x) { return full({}, x, Dtype::f64, terms.norms.device()); };
  const Tensor few =
      scale(binary(binary_index<functors::Maximum>, terms.roots, number(1)), max_cancellation_of_few);
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
