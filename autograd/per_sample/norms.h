// Inner products and norms of per-sample gradients, with bounds on what rounding adds to them.
#pragma once

#include <vector>

#include "autograd/per_sample/cost_model.h"
#include "core/tensor.h"

namespace sotto {

class PerSampleGrad;

// The norm of a parameter's gradient for each sample: tensors [n] f64, on the device of its
// factors.
struct NormEstimate {
  Tensor squares;  // squared norms
  // How far in the L2 norm rounding may take a sample's part of the parameter's sum from its
  // gradient: 2^-23 sqrt(T) sum_t |b[t]| |a[t]| in single precision, added over uses, for T
  // positions, and what underflow may take from inner products (docs/appendix/proofs-rounding.md). Far below the
  // norm unless terms cancel. A gradient that was materialized from factors has their bounds; a
  // single use that arose materialized has 0. Undefined: 0.
  Tensor error_bounds;
  // Scaled norm of the summands: sum_t |b[t]| |a[t]| / max(min(64, 8 sqrt(T)), 4 sqrt(T)), added
  // over uses. If it exceeds the clip bound, adding this sample to a running f32 sum would swamp
  // the others, so it is summed separately. Undefined: 0.
  Tensor term_norms;
  // Nonzero for samples whose squared norm lost too many digits to cancellation and must be
  // recomputed in f64. Undefined: none.
  Tensor needs_f64;
};

// The error bounds and term norms of a NormEstimate on the host, zeros where undefined.
struct NormErrorBounds {
  std::vector<double> error_bounds, term_norms;
};

// [n] f64: <f[n], g[n]>. Throws std::invalid_argument when samples, shapes or types differ.
Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g,
           NormMethod norm_method = NormMethod::automatic);

// [n] f64: squared norms of a parameter's gradient, the sum of all its uses with their cross terms;
// exact to rounding where uses cancel each other, too. `bounds`, unless it is nullptr, is given
// what rounding may add. Throws std::invalid_argument without a use.
Tensor squared_norm(const std::vector<PerSampleGrad>& uses,
                    NormMethod norm_method = NormMethod::automatic,
                    NormErrorBounds* bounds = nullptr);

// The same without a read on the host: samples that squared_norm() would recompute in f64 are
// marked in needs_f64 instead.
NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses,
                        NormMethod norm_method = NormMethod::automatic);

// `weight` times the gradient of one sample, the sum over all uses: added up in f64 and rounded
// once to the type of sums.
Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                           double weight);

}  // namespace sotto
