// Inner products <f[n], g[n]> of per-sample gradients, sample by sample. For the sources of this
// folder.
#pragma once

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/per_sample_grad.h"

namespace sotto::detail {

// Returns <f[n], g[n]>, [n] f64. Inner products that lost too many digits to cancellation are
// recomputed in f64. If `needs_f64` [n] is defined, they are only marked there with 1, and the host
// does not wait for the device.
Tensor inner_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                      const Tensor& needs_f64);
// Writes them to y [n] f64.
void write_inner_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method,
                          const Tensor& needs_f64, const Tensor& y);

// Squared norms [n] of a convolution's per-sample gradients, which are not written to memory, and
// of their factors dy and x.
struct ConvNorms {
  Tensor squares, dy_squares, x_squares;
};
ConvNorms conv_norms(const PerSampleGrad& f, const Tensor& needs_f64);

// Returns the squared norm of each sample of x, [n] f64.
Tensor squared_norms(const Tensor& x);
// squared_norms() of images [n, c, d, h, w], read in channels-last order.
Tensor squared_image_norms(const Tensor& x);
Tensor square_root(const Tensor& x);

// True if Gram products of these images are computed in f64, which costs little where patches and
// outputs are narrow.
bool has_f64_gram(const Form& form);

PerSampleGrad in_f64(const PerSampleGrad& f);

}  // namespace sotto::detail
