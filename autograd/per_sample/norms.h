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
  Tensor squares;  // squared norms, plus what Gram products may lose of them (`lost`)
  // Bounds on the L2 distance between a sample's exact gradient and its rounded contribution to the
  // parameter's sum, plus that to the gradient of the norm: in single precision 2^-23 (k + 1)
  // sum_t |b[t]| |a[t]| for sums of T positions with k roundings (gemm_blocking.h), added over
  // uses, plus the loss to underflow (docs/appendix/proofs-rounding.md). Far below the norm unless
  // terms cancel. A gradient materialized from factors has the bounds of its factors; a single use
  // that arose materialized has 0. Undefined: 0.
  Tensor error_bounds;
  // Scaled norm of the summands: sum_t |b[t]| |a[t]| / max(min(64, 8 sqrt(T)), 4 sqrt(T)), added
  // over uses. If it exceeds the clip bound, adding this sample to a running f32 sum would swamp
  // the others, so it is summed separately. Undefined: 0.
  Tensor term_norms;
  // Nonzero for samples whose squared norm lost too many digits to cancellation and must be
  // recomputed in f64. Undefined: none.
  Tensor needs_f64;
  // What Gram products may lose of squared norms, whether or not they are computed so: the method
  // may depend on other samples. Undefined: 0, or part of the squares.
  Tensor lost = {};
  // The positions of the factors in these bounds, and the most that are added one after the other
  // (TermBounds).
  double positions = 1, chain = 0;
};

// The error bounds and term norms of a NormEstimate on the host, zeros where undefined.
struct NormErrorBounds {
  std::vector<double> error_bounds, term_norms;  // one for each sample
};

// Returns <f[n], g[n]>, [n] f64. Throws std::invalid_argument if numbers of samples, shapes or
// types differ.
Tensor dot(const PerSampleGrad& f, const PerSampleGrad& g,
           NormMethod norm_method = NormMethod::automatic);
// Returns <f[n], v>, [n] f64, for one direction v of the parameter's shape, without materializing
// f: products in the type of sums, added in f64. On a CPU the bits of a sample's value do not
// depend on the other samples. Throws std::invalid_argument for another shape or type than f's.
Tensor dot(const PerSampleGrad& f, const Tensor& v);

// Returns the squared norms [n] f64 of a parameter's per-sample gradients, each of which is the sum
// over the parameter's uses; cross terms are included, and norms stay accurate where uses cancel.
// Also sets *bounds, unless nullptr, to the rounding bounds. Throws std::invalid_argument if `uses`
// is empty.
Tensor squared_norm(const std::vector<PerSampleGrad>& uses,
                    NormMethod norm_method = NormMethod::automatic,
                    NormErrorBounds* bounds = nullptr);

// Writes squared_norm() and its bounds into tensors that hold zeros, without a read on the host:
// samples that squared_norm() would recompute in f64 are marked in needs_f64 instead.
void write_norm_terms(const std::vector<PerSampleGrad>& uses, NormMethod norm_method,
                      const NormEstimate& y);
// The same in new tensors.
NormEstimate norm_terms(const std::vector<PerSampleGrad>& uses,
                        NormMethod norm_method = NormMethod::automatic);

// Returns `weight` times the gradient of one sample, in the parameter's shape: the sum over all
// uses, added up in f64 and rounded once to the type of sums.
Tensor sample_gradient_f64(const std::vector<PerSampleGrad>& uses, std::int64_t sample,
                           double weight);

}  // namespace sotto
