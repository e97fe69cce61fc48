// Norms and sums of several parameters at once, in few launches.
#include "autograd/per_sample/several_norms.h"

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/rounding_bounds.h"
#include "kernels/backend.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

using detail::Dense, detail::Outer;

// x as a matrix; kept by the caller, since it may be a copy.
Tensor rows_of(const Tensor& x, std::int64_t rows) {
  return reshape(x, {rows, rows == 0 ? 0 : x.numel() / rows});
}

// A parameter's only gradients, if they arose materialized.
const Dense* only_materialized(const std::vector<PerSampleGrad>& uses) {
  return uses.size() == 1 ? uses[0].form_data().as<Dense>() : nullptr;
}

// The norms that are computed together: of gradients that arose materialized, and of the factors of
// products.
class NormBatch {
 public:
  explicit NormBatch(NormMethod norm_method) : norm_method_(norm_method) {}

  // Returns false for a parameter that is computed by itself.
  bool add(const ParameterNorms& parameter) {
    const std::vector<PerSampleGrad>& uses = *parameter.uses;
    const NormEstimate& y = parameter.terms;
    if (uses.size() != 1 || uses[0].inherited().squares.defined()) return false;
    const std::int64_t n = uses[0].samples();
    const bool inherits = uses[0].inherited().error_bounds.defined();
    if (const Dense* f = only_materialized(uses)) {
      add_rows(rows_of(f->gradients, n), y.squares);
      if (inherits) inherited_.push_back(parameter);
      return true;
    }
    if (inherits) return false;
    const auto* f = uses[0].form_data().as<Outer>();
    if (!f || detail::rounds_once(uses[0])) return false;
    const Tensor a = position_squares(f->a),
                 b = f->squares.defined() ? f->squares : position_squares(f->b);
    bounds_.push_back({detail::outer_bounds(uses[0].form_data()), a.view(), b.view(),
                       y.error_bounds.view(), y.term_norms.view(), y.squares.view()});
    products_.push_back(parameter);
    return true;
  }
  void run(Device device) {
    Backend& there = backend(device);
    if (!rows_.empty()) there.squared_row_norms(rows_);
    for (const ParameterNorms& parameter : products_) {
      const PerSampleGrad& use = (*parameter.uses)[0];
      const bool gram = detail::uses_gram_products(use, use, norm_method_);
      detail::write_inner_products(use, use, norm_method_,
                                   gram ? Tensor() : parameter.terms.needs_f64,
                                   parameter.terms.squares);
    }
    if (!bounds_.empty()) there.term_bounds(bounds_);
    for (const ParameterNorms& parameter : inherited_)
      detail::write_rounding_bounds(*parameter.uses, parameter.terms);
  }

 private:
  // The squared norms [n, t] of x [n, t, k], when run() has begun.
  Tensor position_squares(const Tensor& x) {
    const std::int64_t n = x.size(0), t = x.size(1);
    Tensor y = Tensor::empty({n, t}, Dtype::f64, x.device());
    add_rows(rows_of(x, n * t), reshape(y, {n * t}));
    kept_.push_back(y);
    return y;
  }
  void add_rows(const Tensor& x, const Tensor& y) {
    rows_.push_back({x.view(), y.view()});
    kept_.push_back(x);
  }

  NormMethod norm_method_;
  std::vector<RowNorms> rows_;
  std::vector<BoundedTerms> bounds_;
  std::vector<ParameterNorms> products_, inherited_;
  std::vector<Tensor> kept_;
};

}  // namespace

void write_norm_terms(const std::vector<ParameterNorms>& parameters, NormMethod norm_method) {
  if (parameters.empty()) return;
  NormBatch batch(norm_method);
  for (const ParameterNorms& parameter : parameters) {
    if (!batch.add(parameter)) write_norm_terms(*parameter.uses, norm_method, parameter.terms);
  }
  batch.run(parameters[0].terms.squares.device());
}

void add_sums(const std::vector<ParameterSum>& parameters, const Tensor& weights,
              const BlockEnds& ends) {
  std::vector<RoundedRows> rows;
  std::vector<Tensor> kept;
  for (const auto& [uses, sum] : parameters) {
    if (const Dense* f = only_materialized(*uses)) {
      const std::int64_t n = (*uses)[0].samples();
      check(weights.shape() == Shape{n}, "add_sums: weights {} for {} samples", weights.shape(), n);
      kept.push_back(rows_of(f->gradients, n));
      const Tensor total = reshape(sum.total, {sum.total.numel()});  // row-major: a view
      rows.push_back({kept.back().view(), sum.spacing, total.view()});
      continue;
    }
    for (const PerSampleGrad& use : *uses) use.add_to(sum, weights, ends, std::ssize(*uses));
  }
  if (!rows.empty()) backend(weights.device()).add_all_rounded(rows, weights.view());
}

}  // namespace sotto
