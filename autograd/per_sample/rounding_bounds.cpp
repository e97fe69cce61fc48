#include "autograd/per_sample/rounding_bounds.h"

#include <cmath>
#include <limits>

#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/weighted_sum_bf16.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/host_device/term_bounds.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Convolutions summed by Winograd tiles err by up to 9 * 2^-23 |dy| |x|, even for one tile (found
// by a search); direct sums err by less than 2^-23 |dy| |x|. Winograd needs a 3 x 3 window, whose
// bound is 3 sqrt(T) 2^-23 |dy| |x|: with at least this many positions T it is more than twice the
// error.
constexpr double min_tiled_positions = 64;
// Values beyond it may overflow within a tile although no result of the tile does.
constexpr double max_tiled = 0x1p100;

// True if a backend may sum the convolution by Winograd tiles.
bool sums_by_tiles(const Form& form) {
  const auto* f = form.as<Patches>();
  return f && f->window.suits_tiles() && form.dtype() == Dtype::f32;
}

// How the form's terms are summed; without underflow. A table's norms are only an upper bound.
TermBounds sum_bounds(const Form& form) {
  constexpr double max_cancellation = 64;
  TermBounds y{.roundoff = form.dtype() == Dtype::f64 ? 0x1p-52 : 0x1p-23,
               .split = is_split_into_bf16(form) ? bf16x2_rounding : 0,
               .max_cancellation = form.as<OneHot>() ? 0 : max_cancellation};
  if (const auto* f = form.as<Patches>()) {
    y.windows = static_cast<double>(f->window.overlap());
    y.positions = form.positions();
    y.min_positions = sums_by_tiles(form) ? min_tiled_positions : 0;
  }
  return y;
}

// Adds the error that underflow may cause in a gradient of two factors, or of one product. Gram
// products may lose u, the smallest normal number, per term of an element, and so the norm
// sqrt(u T) (sqrt(i) |b| + sqrt(o) |a|). Scaling rounds each element of a factor by up to 2^-150,
// half the smallest number, and so the sum by w 2^-50 sqrt(T o) |a|, since weights w are at least
// 2^-100 (GradientNorm::factor); this is the larger error. Winograd tiles round such numbers some
// ten times more and add up to ten of these errors in a result: their bound is 64 times as large.
TermBounds with_underflow(const Form& form, TermBounds y) {
  std::int64_t inner = 0, outer = 0, repeats = 1;
  if (const auto* f = form.as<Outer>()) {
    inner = f->a.size(2), outer = f->b.size(2);
  } else if (const auto* p = form.as<Patches>()) {
    inner = p->x.size(1), outer = p->dy.size(1);
    repeats = p->window.positions();  // a pixel lies in at most this many patches
  }
  const auto lost = [&](double unit, std::int64_t terms) {
    return unit * std::sqrt(form.positions() * static_cast<double>(terms * repeats));
  };
  const bool f64 = form.dtype() == Dtype::f64;
  y.underflow_a = lost(f64 ? 0x1p-511 : (sums_by_tiles(form) ? 0x1p-43 : 0x1p-49), outer);
  if (!y.rounds_once) y.underflow_b = lost(f64 ? 0x1p-511 : 0x1p-63, inner);
  return y;
}

void write(const TermBounds& bounds, const View& a, const View& b, const NormEstimate& y) {
  const BoundedTerms terms{bounds, a, b, y.error_bounds.view(), y.term_norms.view()};
  backend(y.error_bounds.device()).term_bounds({&terms, 1});
}

// The squared norms [n, t] of x [n, t, k].
Tensor position_squares(const Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1);
  return reshape(squared_norms(reshape(x, {n * t, x.size(2)})), {n, t});
}

// The squared norms [n] of samples, as a column.
View column(const Tensor& squares) { return squares.unsqueeze(1).view(); }

// Positions that only pad a sample to the length of the batch's longest are no terms: a bound must
// not depend on the other samples of the batch.
void write_term_bounds(const Form& form, const NormEstimate& y) {
  const TermBounds bounds = sum_bounds(form);
  if (const auto* f = form.as<Outer>()) {
    const Tensor a = position_squares(f->a),
                 b = f->squares.defined() ? f->squares : position_squares(f->b);
    write(with_underflow(form, bounds), a.view(), b.view(), y);
  } else if (const auto* table = form.as<OneHot>()) {
    const Tensor b = position_squares(table->b);
    write(bounds, table->ids.view(), b.view(), y);
  } else {
    const Tensor b = squared_norms(form.leading());
    write(bounds, {}, column(b), y);
  }
}

// Writes the bounds of one use, the parameter's only one or not, to zeros.
void write_use(const PerSampleGrad& use, bool only_use, const NormEstimate& y) {
  const Form& form = use.form_data();
  const NormEstimate& inherited = use.inherited();
  if (inherited.error_bounds.defined()) {
    copy_into(inherited.error_bounds, y.error_bounds);
    copy_into(inherited.term_norms, y.term_norms);
  } else if (const auto* f = form.as<Patches>()) {
    write_conv_bounds(form, squared_image_norms(f->dy), squared_image_norms(f->x), y);
  } else if (!only_use || !rounds_once(use)) {
    write_term_bounds(form, y);
  } else if (const auto* product = form.as<Outer>()) {
    write_product_bounds(form, squared_norms(product->a), y);
  }
}

// Bounds of zero.
NormEstimate no_bounds(const Form& form) {
  const Tensor both = zeros({2, form.samples()}, Dtype::f64, form.device());
  NormEstimate y;
  y.error_bounds = both.select(0, 0);
  y.term_norms = both.select(0, 1);
  return y;
}

}  // namespace

void write_conv_bounds(const Form& form, const Tensor& dy_squares, const Tensor& x_squares,
                       const NormEstimate& y) {
  write(with_underflow(form, sum_bounds(form)), column(x_squares), column(dy_squares), y);
  if (!sums_by_tiles(form) || x_squares.device() != cpu) return;  // no other backend uses tiles
  const Tensor max_squares = full({}, max_tiled * max_tiled, Dtype::f64);
  for (const Tensor& squares : {dy_squares, x_squares}) {
    const Tensor beyond = binary(binary_index<functors::Greater>, squares, max_squares);
    axpby(std::numeric_limits<double>::max(), beyond, 1, y.term_norms);
  }
}

void write_product_bounds(const Form& form, const Tensor& a_squares, const NormEstimate& y) {
  const TermBounds bounds = with_underflow(form, {.rounds_once = true});
  write(bounds, column(a_squares), column(a_squares), y);
}

void write_rounding_bounds(const std::vector<PerSampleGrad>& uses, const NormEstimate& y) {
  for (const PerSampleGrad& use : uses) {
    if (&use == &uses[0]) {
      write_use(use, uses.size() == 1, y);
      continue;
    }
    const NormEstimate more = no_bounds(use.form_data());
    write_use(use, false, more);
    axpby(1, more.error_bounds, 1, y.error_bounds);
    axpby(1, more.term_norms, 1, y.term_norms);
  }
}

TermBounds outer_bounds(const Form& form) { return with_underflow(form, sum_bounds(form)); }

NormEstimate conv_rounding_bounds(const Form& form, const Tensor& dy_squares,
                                  const Tensor& x_squares) {
  NormEstimate y = no_bounds(form);
  write_conv_bounds(form, dy_squares, x_squares, y);
  return y;
}

NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use) {
  NormEstimate y = no_bounds(use.form_data());
  write_use(use, only_use, y);
  return y;
}

NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses) {
  NormEstimate y = no_bounds(uses[0].form_data());
  write_rounding_bounds(uses, y);
  return y;
}

bool rounds_once(const PerSampleGrad& use) {
  return !use.inherited().error_bounds.defined() && use.form_data().positions() <= 1 &&
         !use.form_data().as<Patches>() && !is_split_into_bf16(use.form_data());
}

}  // namespace sotto::detail
