// The gradient of a shared value, one summand for each sample, kept in the form it arose in.
//
// For every op the gradient of a parameter is a sum over samples, and each summand G[n] has
// structure: an outer product summed over positions, a weight gradient of one image, a few rows of
// a table. PerSampleGrad keeps it; the ordinary gradient is sum(), norms are dot(f, f) (norms.h),
// and a clipped gradient is sum(weights). docs/explanation/per-sample-gradients.md derives forms and costs.
#pragma once

#include <memory>

#include "autograd/per_sample/cost_model.h"
#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/per_sample/norms.h"
#include "autograd/per_sample/rounded_sum.h"

namespace sotto {

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
  // `squares` [n, t] f64 is |b[n,t]|^2, where that is known.
  static PerSampleGrad outer(const Tensor& b, const Tensor& a, const Shape& shape,
                             const Tensor& squares = {});
  // The same with a = patches of x [n, c, d, h, w], and b = dy [n, o, d', h', w']; `shape` is that
  // of the weight, [o, c / groups, kd, kh, kw] up to axes of size 1.
  static PerSampleGrad patches(const Tensor& dy, const Tensor& x, const Window& window,
                               const Shape& shape);
  // G[n] = sum_t e(ids[n,t]) (x) b[n,t], with ids [n, t] i64 and b [n, t, d], or [n, 1, d] where
  // all positions have the same; a negative id adds nothing, and without `gaps` there is none;
  // `shape` is [rows, d].
  static PerSampleGrad onehot(const Tensor& ids, const Tensor& b, const Shape& shape,
                              bool gaps = true);
  // G itself, [n, ...shape].
  static PerSampleGrad materialized(const Tensor& gradients);
  // The first `samples` of gradients in a CUDA graph's own memory, which every replay overwrites.
  static PerSampleGrad captured_prefix(std::shared_ptr<const PerSampleGrad> captured,
                                       std::int64_t samples);

  std::int64_t samples() const { return form_.samples(); }
  Device device() const { return form_.device(); }
  const Shape& shape() const { return shape_; }  // of the parameter
  // The type of sums and materialized gradients: f32, or f64 where the factors are.
  Dtype dtype() const { return form_.dtype(); }
  const char* form() const { return form_.name(); }  // "outer", "patches", "onehot" or "dense"
  std::size_t bytes() const { return form_.bytes(); }
  std::size_t materialized_bytes() const;  // of materialize()
  PerSampleTimes times() const { return detail::expected_times(*this); }
  // The batch that captured_prefix() was given; null for all others, also for slices of its result.
  const std::shared_ptr<const PerSampleGrad>& captured() const { return captured_; }
  // Labels what was workspace as factors or as materialized gradients. Tensors that have another
  // use, as activations, keep their label.
  void count_as_kept() const { form_.count_as_kept(); }

  // [n, ...shape]
  Tensor materialize() const;
  // sum_n G[n], of the parameter's shape.
  Tensor sum() const;
  // sum_n w[n] G[n] over the samples with w[n] != 0; w [n], f32 or f64. Weights select: a sample of
  // weight 0 adds exactly nothing, whatever its gradient holds. The host does not read weights on a
  // GPU: there a sample of weight 0 adds nothing or, where a factor is not finite, perhaps NaN.
  Tensor sum(const Tensor& weights) const;
  // The same, added to a sum with each of its terms rounded to a multiple of the sum's spacing. A
  // term is a sample of a dense form or a row of a table, in other forms a block of samples or a
  // single one. `uses` is how many times the parameter is used.
  void add_to(const RoundedSum& sum, const Tensor& weights, const BlockEnds& ends,
              std::int64_t uses = 1) const;

  // Samples begin .. end - 1.
  PerSampleGrad slice(std::int64_t begin, std::int64_t end) const;
  // The materialized sum of both gradients of each sample.
  PerSampleGrad with_rows(const PerSampleGrad& other) const;
  // One summand for each unit instead of each row.
  PerSampleGrad group(const Grouping& grouping) const { return detail::group(*this, grouping); }
  // The same numbers for a parameter of another shape with as many elements, in row-major order.
  PerSampleGrad reshaped(const Shape& shape) const;
  // Each G[n] with its axes in another order: y axis k is axis axes[k].
  PerSampleGrad permuted(const Shape& axes) const;
  // Materializes the gradients if the cost model says norm + weighted sum are then cheaper and they
  // fit in `budget` bytes (and, unless `norm_method` forces it, take no more bytes than 16-bit
  // factors). Otherwise returns *this.
  PerSampleGrad materialize_if_cheaper(NormMethod norm_method, std::size_t budget) const;
  // Materializes the gradients if these take fewer bytes than the factors.
  PerSampleGrad smallest_form() const;

  // For the sources of this folder, as all of sotto::detail.
  PerSampleGrad(detail::Form form, const Shape& shape, NormEstimate inherited = {});
  const detail::Form& form_data() const { return form_; }
  // Error bounds inherited from the factors this was materialized from, so that they do not depend
  // on whether the batch chose to materialize; and squared norms already computed along the way.
  // Only slice() carries them over, and reordering of a dense form's elements.
  const NormEstimate& inherited() const { return inherited_; }

 private:
  detail::Form form_;
  Shape shape_;
  std::shared_ptr<const PerSampleGrad> captured_;
  NormEstimate inherited_;
};

}  // namespace sotto
