#include "autograd/per_sample/norms.h"

#include <numeric>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounding_bounds.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The gradient of one sample, materialized and added up over uses in f64.
std::vector<double> sample_gradient(const std::vector<PerSampleGrad>& uses, std::int64_t sample) {
  std::vector<double> total(static_cast<std::size_t>(uses[0].shape().numel()));
  for (const PerSampleGrad& use : uses) {
    const Tensor gradient = detail::in_f64(use.slice(sample, sample + 1)).materialize();
    const std::vector<double> values = gradient.to_vector<double>();
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[i];
  }
  return total;
}

// Writes squared norms of a parameter that is used several times, from the inner products of all
// pairs of uses. Returns the sums of the uses' norms.
Tensor write_squared_norm_of_uses(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                                  const Tensor& needs_f64, const Tensor& total) {
  // If the norm is below this fraction of what it would be if all uses had one direction, the
  // rounding of the inner products could show in the fifth digit.
  constexpr double min_fraction = 0.02;
  backend(total.device()).fill(0, total.view());
  const Tensor max_norm = zeros_like(total);
  for (std::size_t u = 0; u < uses.size(); ++u) {
    const Tensor own = detail::inner_products(uses[u], uses[u], norm_method, needs_f64);
    axpby(1, own, 1, total);
    axpby(1, detail::square_root(own), 1, max_norm);
    for (std::size_t v = 0; v < u; ++v)
      axpby(2, detail::inner_products(uses[u], uses[v], norm_method, needs_f64), 1, total);
  }
  // Comparisons with NaN give NaN, which is not 0: such a sample is recomputed, too.
  const Tensor min_square = mul(scale(max_norm, min_fraction), max_norm);
  const Tensor unreliable = binary(binary_index<functors::Greater>, min_square, total);
  if (needs_f64.defined()) {
    axpby(1, unreliable, 1, needs_f64);
    return max_norm;
  }
  const std::vector<double> marked = unreliable.to_vector<double>();
  for (std::int64_t n = 0; n < std::ssize(marked); ++n) {
    if (marked[static_cast<std::size_t>(n)] == 0) continue;
    const std::vector<double> g = sample_gradient(uses, n);
    const double square = std::inner_product(g.begin(), g.end(), g.begin(), 0.0);
    copy_into(full({}, square, Dtype::f64), total.slice(0, n, n + 1));
  }
  return max_norm;
}

// Adds to squared norms what the errors of the uses' gradients, of `norms` together, may have taken
// from their inner products: (2 |f| + e) e.
void add_lost(const Tensor& norms, const NormEstimate& y) {
  axpby(1, mul(add(scale(norms, 2), y.error_bounds), y.error_bounds), 1, y.squares);
}

// The squared norms of a convolution's gradients, and their bounds if these are defined.
void write_conv_estimate(const PerSampleGrad& use, const Tensor& needs_f64, const NormEstimate& y) {
  const detail::ConvNorms norms = detail::conv_norms(use, needs_f64);
  copy_into(norms.squares, y.squares);
  if (y.error_bounds.defined())
    detail::write_conv_bounds(use.form_data(), norms.dy_squares, norms.x_squares, y);
}

// Writes the squared norms, and their bounds if these are defined. Squares that lost digits to
// cancellation are marked if needs_f64 is defined; otherwise they are read by the host and
// recomputed in f64.
void write_estimate(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                    const NormEstimate& y) {
  check(!uses.empty(), "squared_norm: a parameter without a use");
  const PerSampleGrad& first = uses[0];
  const detail::Form& form = first.form_data();
  const bool single = uses.size() == 1;
  const bool gram = single && detail::uses_gram_products(first, first, norm_method);
  const bool materialized = form.as<detail::Dense>() || form.as<detail::Derived>(),
             reliable = gram || (single && materialized);
  const Tensor needs_f64 = reliable ? Tensor() : y.needs_f64;
  if (single && !gram && form.as<detail::Patches>())
    return write_conv_estimate(first, needs_f64, y);
  const auto* outer = form.as<detail::Outer>();
  if (gram && outer && detail::rounds_once(first)) {
    const Tensor a = detail::squared_norms(outer->a), b = detail::squared_norms(outer->b);
    if (y.error_bounds.defined()) detail::write_product_bounds(form, b, a, y);
    binary(binary_index<functors::Mul>, a, b, y.squares);
    return;
  }
  Tensor norms;
  if (!single)
    norms = write_squared_norm_of_uses(uses, norm_method, needs_f64, y.squares);
  else if (first.inherited().squares.defined())
    copy_into(first.inherited().squares, y.squares);
  else
    detail::write_inner_products(first, first, norm_method, needs_f64, y.squares);
  if (!y.error_bounds.defined()) return;
  detail::write_rounding_bounds(uses, y);
  if (!single) add_lost(norms, y);
}

}  // namespace

Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method) {
  return detail::inner_products(f, g, norm_method, {});
}

void write_norm_terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                      const NormEstimate& y) {
  write_estimate(uses, norm_method, y);
}

NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method) {
  check(!uses.empty(), "norm_terms: a parameter without a use");
  const Tensor all = zeros({4, uses[0].samples()}, Dtype::f64, uses[0].device());
  const NormEstimate y{all.select(0, 0), all.select(0, 1), all.select(0, 2), all.select(0, 3)};
  write_norm_terms(uses, norm_method, y);
  return y;
}

Tensor squared_norm(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                    NormErrorBounds* bounds) {
  check(!uses.empty(), "squared_norm: a parameter without a use");
  const std::int64_t samples = uses[0].samples();
  NormEstimate y;
  y.squares = Tensor::empty({samples}, Dtype::f64, uses[0].device());
  if (bounds) {
    const Tensor both = zeros({2, samples}, Dtype::f64, uses[0].device());
    y.error_bounds = both.select(0, 0);
    y.term_norms = both.select(0, 1);
  }
  write_estimate(uses, norm_method, y);
  if (bounds) *bounds = {y.error_bounds.to_vector<double>(), y.term_norms.to_vector<double>()};
  return y.squares;
}

Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                           double weight) {
  std::vector<double> values = sample_gradient(uses, sample);
  for (double& value : values) value *= weight;
  return to_dtype(Tensor::from(values, uses[0].shape()), uses[0].dtype()).to(uses[0].device());
}

}  // namespace sotto
