// Inner products <f[n], g[n]> of per-sample gradients, sample by sample. For the sources of this
// folder.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"

namespace sotto::detail {

// [n] f64. Inner products that lost too many digits to cancellation are recomputed in f64, or only
// marked in `needs_f64` [n] where that is defined, without a wait for the device.
Tensor inner_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                      const Tensor& needs_f64);

// Squared norms of a convolution's per-sample gradients, none of which is written, and of the
// factors that they are made of.
struct ConvNorms {
  Tensor squares, dy_squares, x_squares;
};
ConvNorms conv_norms(const PerSampleGrad& f, const Tensor& needs_f64);

// [n]: the squared norm of each sample of x.
Tensor squared_norms(const Tensor& x);
// The same of images [n, c, d, h, w], read in channels-last order.
Tensor squared_image_norms(const Tensor& x);
Tensor square_root(const Tensor& x);

PerSampleGrad in_f64(const PerSampleGrad& f);

}  // namespace sotto::detail
