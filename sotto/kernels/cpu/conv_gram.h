// The norms of a convolution's per-sample weight gradients by Gram products of pixels.
#pragma once

#include "sotto/kernels/cpu/product.h"
#include "sotto/kernels/geometry.h"

namespace sotto {

// Backend::conv_gram_norms, with this product. False for windows that move by more than one pixel.
bool conv_gram_norms_by(ProductFunction product, const View& dy, const View& x,
                        const Window& window, const View& y);

// The squared norm of one sample's weight gradient, by its definition and in double.
double exact_weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample);

}  // namespace sotto
