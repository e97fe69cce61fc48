// The gradient of a shared value, one summand for each sample, kept in the form it arose in.
//
// For every op the gradient of a parameter is a sum over samples, and each summand G[n] has
// structure: an outer product summed over positions, a weight gradient of one image, a few rows of
// a table. PerSampleGrad stores the factors of that structure instead of G. The ordinary gradient
// is sum(), squared norms are dot(f, f) (norms.h), and a clipped gradient is sum(weights).
// docs/explanation/per-sample-gradients.md derives forms and costs.
#pragma once

#include <memory>

#include "autograd/per_sample/cost_model.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/rounded_sum.h"
#include "core/tensor.h"

namespace sotto {
struct Window;
namespace detail {
class Form;
}
}  // namespace sotto

namespace sotto {

// The per-sample gradients of one use of a parameter. An op's backward makes one and hands it to
// Adjoint::shared(); a sink (sink.h) receives those of all uses:
//
//   adjoint.shared(1, PerSampleGrad::outer(dy, x, {outputs, inputs}));  // W of y = x W^T
//
// 16-bit factors are exact inputs: sums and materialized gradients are accumulated in f32. The CPU
// converts a few samples at a time; a GPU multiplies 16-bit factors directly, and splits a factor
// scaled by clip weights into two bf16 numbers (weighted_sum_bf16.h).
class PerSampleGrad {
 public:
  PerSampleGrad(const PerSampleGrad&);
  PerSampleGrad(PerSampleGrad&&) noexcept;
  PerSampleGrad& operator=(const PerSampleGrad&);
  PerSampleGrad& operator=(PerSampleGrad&&) noexcept;
  ~PerSampleGrad();

  // G[n] = sum_t b[n,t] (x) a[n,t], with b [n, t, o] and a [n, t, i]; `shape` holds o * i elements.
  // `squares` [n, t] f64 is |b[n,t]|^2 if the caller has it already.
  static PerSampleGrad outer(const Tensor& b, const Tensor& a, const Shape& shape,
                             const Tensor& squares = {});
  // The outer form with a = patches of x [n, c, d, h, w] and b = dy [n, o, d', h', w']; `shape` is
  // that of the weight, [o, c / groups, kd, kh, kw] up to axes of size 1.
  static PerSampleGrad patches(const Tensor& dy, const Tensor& x, const Window& window,
                               const Shape& shape);
  // G[n] = sum_t e(ids[n,t]) (x) b[n,t], with e(i) the i-th unit vector, ids [n, t] i64, and b
  // [n, t, d], or [n, 1, d] where all positions of a sample share one vector; `shape` is [rows, d].
  // A negative id adds nothing; `gaps` = false promises that there is none.
  static PerSampleGrad onehot(const Tensor& ids, const Tensor& b, const Shape& shape,
                              bool gaps = true);
  // The gradients G themselves, [n, ...shape].
  static PerSampleGrad materialized(const Tensor& gradients);
  // The first `samples` samples of gradients that live in a CUDA graph's own memory; every replay
  // overwrites them.
  static PerSampleGrad captured_prefix(std::shared_ptr<const PerSampleGrad> captured,
                                       std::int64_t samples);

  std::int64_t samples() const;
  Device device() const;
  const Shape& shape() const;  // of the parameter
  // The type of sums and materialized gradients: f32, or f64 where the factors are.
  Dtype dtype() const;
  const char* form() const;  // "outer", "patches", "onehot", "dense" or "derived"
  // The bytes of the factors, or of the materialized gradients.
  std::size_t bytes() const;
  std::size_t materialized_bytes() const;  // of materialize()
  // The expected times of each way to norms and sums (cost_model.h).
  PerSampleTimes times() const { return detail::expected_times(*this); }
  // The full batch that captured_prefix() was given; null for every other gradient, slices of its
  // result included.
  const std::shared_ptr<const PerSampleGrad>& captured() const;
  // Changes the memory label of the tensors from workspace to factors or materialized gradients.
  // Tensors labelled for another use, such as activations, keep their label.
  void count_as_kept() const;

  // Returns G, [n, ...shape].
  Tensor materialize() const;
  // Returns sum_n G[n], in the parameter's shape.
  Tensor sum() const;
  // Returns sum_n w[n] G[n], in the parameter's shape; w [n], f32 or f64. Weights select: a sample
  // of weight 0 adds exactly nothing, even if its gradient is not finite. The exception is weights
  // on a GPU, which the host does not read: there a sample of weight 0 with a factor that is not
  // finite may make the sum NaN.
  Tensor sum(const Tensor& weights) const;
  // Adds sum(weights) to a RoundedSum, term by term: each term is rounded to a multiple of the
  // sum's spacing. A term is one sample of a dense form, one position's row of a table (one sample
  // of more than 256 sqrt(rows of the table) positions), and in other forms a block of samples or a
  // single sample. `uses` is the number of uses of the parameter.
  void add_to(const RoundedSum& sum, const Tensor& weights, const BlockEnds& ends,
              std::int64_t uses = 1) const;

  // Samples begin to end - 1.
  PerSampleGrad slice(std::int64_t begin, std::int64_t end) const;
  // The sum of both gradients for each sample, materialized, or derived if one of them is.
  PerSampleGrad with_rows(const PerSampleGrad& other) const;
  // One summand for each unit instead of each row.
  PerSampleGrad group(const Grouping& grouping) const { return detail::group(*this, grouping); }
  // The gradient with respect to the parameter reshaped to `shape`, which has as many elements in
  // the same row-major order.
  PerSampleGrad reshaped(const Shape& shape) const;
  // Each G[n] with its axes permuted: axis k of the result is axis axes[k] of G[n].
  PerSampleGrad permuted(const Shape& axes) const;
  // Materializes the gradients if by the cost model norm and weighted sum are then cheaper and they
  // fit in `budget` bytes (and, unless `norm_method` forces it, take no more bytes than 16-bit
  // factors). Otherwise returns *this.
  PerSampleGrad materialize_if_cheaper(NormMethod norm_method, std::size_t budget) const;
  // Materializes the gradients if these take fewer bytes than the factors, and derived ones, which
  // may read values of parameters.
  PerSampleGrad smallest_form() const;

  // The remaining members are for the sources of this folder, like all of sotto::detail.
  PerSampleGrad(detail::Form form, const Shape& shape);
  PerSampleGrad(detail::Form form, const Shape& shape, NormEstimate inherited);
  // The form with its factors.
  const detail::Form& form_data() const;
  // Error bounds of the factors that this was materialized from, so that the bounds do not depend
  // on whether the batch chose to materialize, and squared norms already computed along the way.
  // Only slice(), reshaped() and permuted() carry them over.
  const NormEstimate& inherited() const;

 private:
  struct Content;
  std::shared_ptr<Content> content_;  // copies share it: it does not change once it is made
};

}  // namespace sotto
