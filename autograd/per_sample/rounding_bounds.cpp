#include "autograd/per_sample/rounding_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/weighted_sum_bf16.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/host_device/term_bounds.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Convolutions summed by Winograd tiles err by up to 9 * 2^-23 |dy| |x|, even for one tile (found
// by a search). Winograd needs a 3 x 3 window, whose bound is 3 (2 T + 2) 2^-24 |dy| |x|: with at
// least this many positions T it is more than five times the error.
constexpr double min_tiled_positions = 16;
// Values beyond it may overflow within a tile although no result of the tile does.
constexpr double max_tiled = 0x1p100;
// The rounding of one of T^2 terms that are added in f64, on sixteen running sums or more. Gram
// products of f32 have too few positions for it to matter.
constexpr double f64_terms = 0x1p-57;

// True if a backend may sum the convolution by Winograd tiles.
bool sums_by_tiles(const Form& form) {
  const auto* f = form.as<Patches>();
  return f && f->window.suits_tiles() && form.dtype() == Dtype::f32;
}

double roundoff(const Form& form) { return form.dtype() == Dtype::f64 ? 0x1p-53 : 0x1p-24; }

// How the form's terms are summed; without underflow. A table's norms are only an upper bound.
TermBounds sum_bounds(const Form& form) {
  constexpr double max_cancellation = 64;
  TermBounds y{.roundoff = roundoff(form),
               .split = is_split_into_bf16(form) ? bf16x2_rounding : 0,
               .chain = longest_chain(form),
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
// sqrt(u T) (sqrt(i) |b| + sqrt(o) |a|); in f64 the squared norm of a factor may be lost, too.
// Scaling rounds each element of a factor by up to 2^-150, half the smallest number, and so the sum
// by w 2^-50 sqrt(T o) |a|, since weights w are at least 2^-100 (GradientNorm::factor); this is the
// larger error. Winograd tiles round such numbers some ten times more and add up to ten of these
// errors in a result: their bound is 64 times as large.
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
  if (f64 || !y.rounds_once) y.underflow_b = lost(f64 ? 0x1p-511 : 0x1p-63, inner);
  return y;
}

// Where the losses of Gram products are added.
const Tensor& lost_of(const NormEstimate& y) { return y.lost.defined() ? y.lost : y.squares; }

void write(const TermBounds& bounds, const View& a, const View& b, const NormEstimate& y) {
  const View lost = bounds.gram > 0 ? lost_of(y).view() : View{};
  const BoundedTerms terms{bounds, a, b, y.error_bounds.view(), y.term_norms.view(), lost};
  backend(y.error_bounds.device()).term_bounds({&terms, 1});
}

// The squared norms [n, t] of x [n, t, k].
Tensor position_squares(const Tensor& x) {
  const std::int64_t n = x.size(0), t = x.size(1);
  return reshape(squared_norms(reshape(x, {n * t, x.size(2)})), {n, t});
}

// The squared norms [n, t] of the rows of a and b, together.
std::array<Tensor, 2> position_squares(const Outer& f) {
  const Shape positions{f.a.size(0), f.a.size(1)};
  const auto unwritten = [&] { return Tensor::empty(positions, Dtype::f64, f.a.device()); };
  const Tensor a = unwritten(), b = f.squares.defined() ? f.squares : unwritten();
  const auto norms = [](const Tensor& x, const Tensor& y) {
    return RowNorms{flat(x).view(), reshape(y, {y.numel()}).view()};
  };
  std::vector<RowNorms> all{norms(f.a, a)};
  if (!f.squares.defined()) all.push_back(norms(f.b, b));
  if (a.numel() > 0) backend(f.a.device()).squared_row_norms(all);
  return {a, b};
}

// The squared norms [n] of samples, as a column.
View column(const Tensor& squares) { return squares.unsqueeze(1).view(); }

// Positions that only pad a sample to the length of the batch's longest are no terms: a bound must
// not depend on the other samples of the batch.
void write_term_bounds(const PerSampleGrad& use, double gram, const NormEstimate& y) {
  const Form& form = use.form_data();
  TermBounds bounds = sum_bounds(form);
  bounds.gram = gram;
  if (const auto* f = form.as<Outer>()) {
    const auto [a, b] = position_squares(*f);
    write(with_underflow(form, bounds), a.view(), b.view(), y);
  } else if (const auto* table = form.as<OneHot>()) {
    const Tensor b = position_squares(table->b);
    write(bounds, table->ids.view(), b.view(), y);
  } else {
    const Tensor b = form.as<Derived>() ? inner_products(use, use, NormMethod::materialize, {})
                                        : squared_norms(form.leading());
    write(bounds, {}, column(b), y);
  }
}

void write_image_bounds(const Form& form, const Tensor& dy_squares, const Tensor& x_squares,
                        double gram, const NormEstimate& y) {
  TermBounds bounds = with_underflow(form, sum_bounds(form));
  bounds.gram = gram;
  write(bounds, column(x_squares), column(dy_squares), y);
  if (!sums_by_tiles(form) || x_squares.device() != cpu) return;  // no other backend uses tiles
  const Tensor max_squares = full({}, max_tiled * max_tiled, Dtype::f64);
  for (const Tensor& squares : {dy_squares, x_squares}) {
    const Tensor beyond = binary(binary_index<functors::Greater>, squares, max_squares);
    axpby(std::numeric_limits<double>::max(), beyond, 1, y.term_norms);
  }
}

// Writes the bounds of one of `uses` uses to zeros, and adds its losses of Gram products: the
// square of a sum of `uses` numbers is at most `uses` times the sum of their squares.
void write_use(const PerSampleGrad& use, std::int64_t uses, const NormEstimate& y) {
  const bool only_use = uses == 1;
  const double gram = static_cast<double>(uses) * gram_rounding(use.form_data());
  const Form& form = use.form_data();
  const NormEstimate& inherited = use.inherited();
  if (inherited.error_bounds.defined()) {
    copy_all({{inherited.error_bounds, y.error_bounds}, {inherited.term_norms, y.term_norms}});
    if (inherited.lost.defined()) axpby(static_cast<double>(uses), inherited.lost, 1, lost_of(y));
  } else if (const auto* f = form.as<Patches>()) {
    write_image_bounds(form, squared_image_norms(f->dy), squared_image_norms(f->x), gram, y);
  } else if (!only_use || !rounds_once(use)) {
    write_term_bounds(use, gram, y);
  } else if (const auto* product = form.as<Outer>()) {
    const Tensor a = squared_norms(product->a);
    // In f32 no square is lost, and the other factor's is not used.
    write_product_bounds(form, form.dtype() == Dtype::f64 ? squared_norms(product->b) : a, a, y);
  }
}

// Bounds of zero.
NormEstimate no_bounds(const PerSampleGrad& use) {
  const Form& form = use.form_data();
  const NormEstimate& inherited = use.inherited();
  const bool inherits = inherited.error_bounds.defined();
  const Tensor all = zeros({3, form.samples()}, Dtype::f64, form.device());
  return {.squares = {},
          .error_bounds = all.select(0, 0),
          .term_norms = all.select(0, 1),
          .needs_f64 = {},
          .lost = all.select(0, 2),
          .positions = inherits ? inherited.positions : form.positions(),
          .chain = inherits ? inherited.chain : longest_chain(form)};
}

}  // namespace

double longest_chain(const Form& form) {
  if (form.as<Outer>()) {
    const Dtype factors = form.factor_type().value_or(form.dtype());
    return static_cast<double>(backend(form.device()).chain_of_products(factors));
  }
  return form.as<Patches>() ? static_cast<double>(conv_chain) : 0;
}

void write_conv_bounds(const Form& form, const Tensor& dy_squares, const Tensor& x_squares,
                       const NormEstimate& y) {
  write_image_bounds(form, dy_squares, x_squares, gram_rounding(form), y);
}

void write_product_bounds(const Form& form, const Tensor& b_squares, const Tensor& a_squares,
                          const NormEstimate& y) {
  const TermBounds bounds = with_underflow(form, {.rounds_once = true});
  write(bounds, column(a_squares), column(b_squares), y);
}

void write_rounding_bounds(const std::vector<PerSampleGrad>& uses, const NormEstimate& y) {
  for (const PerSampleGrad& use : uses) {
    if (&use == &uses[0]) {
      write_use(use, std::ssize(uses), y);
      continue;
    }
    const NormEstimate more = no_bounds(use);
    write_use(use, std::ssize(uses), more);
    axpby(1, more.lost, 1, lost_of(y));
    axpby(1, more.error_bounds, 1, y.error_bounds);
    axpby(1, more.term_norms, 1, y.term_norms);
  }
}

double gram_rounding(const Form& form) {
  const auto lost = [&](std::int64_t i, std::int64_t o, std::int64_t chain, std::int64_t taps) {
    // Whichever chains the products have: pixels have longer ones than patches.
    const auto added = [chain](std::int64_t terms) {
      const auto count = static_cast<double>(terms);
      return std::max(roundings(count, static_cast<double>(chain)),
                      roundings(count, static_cast<double>(gram_chain)));
    };
    const double positions = form.positions();
    return (added(i) + added(o) + static_cast<double>(taps)) * roundoff(form) +
           (form.dtype() == Dtype::f64 ? positions * positions * f64_terms : 0);
  };
  if (const auto* f = form.as<Outer>()) return lost(f->a.size(2), f->b.size(2), gram_chain, 0);
  const auto* p = form.as<Patches>();
  if (!p || has_f64_gram(form)) return 0;
  const std::int64_t taps = p->window.positions(), groups = p->window.groups;
  return lost(p->x.size(1) / groups * taps, p->dy.size(1) / groups, product_chain, taps);
}

TermBounds outer_bounds(const Form& form) {
  TermBounds y = with_underflow(form, sum_bounds(form));
  y.gram = gram_rounding(form);
  return y;
}

NormEstimate conv_rounding_bounds(const PerSampleGrad& use, const Tensor& dy_squares,
                                  const Tensor& x_squares) {
  NormEstimate y = no_bounds(use);
  write_conv_bounds(use.form_data(), dy_squares, x_squares, y);
  return y;
}

NormEstimate rounding_bounds(const PerSampleGrad& use, bool only_use) {
  NormEstimate y = no_bounds(use);
  write_use(use, only_use ? 1 : 2, y);
  return y;
}

NormEstimate rounding_bounds(const std::vector<PerSampleGrad>& uses) {
  NormEstimate y = no_bounds(uses[0]);
  write_rounding_bounds(uses, y);
  return y;
}

bool rounds_once(const PerSampleGrad& use) {
  return !use.inherited().error_bounds.defined() && use.form_data().positions() <= 1 &&
         !use.form_data().as<Patches>() && !is_split_into_bf16(use.form_data());
}

}  // namespace sotto::detail
