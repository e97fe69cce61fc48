// Maximum pooling of channels-last images, a row of pixels at a time, so that the innermost loops
// run over whole rows of channels and not over the few channels of one pixel.
#pragma once

#include "sotto/kernels/cpu/images.h"

namespace sotto {

// y and chosen as in Backend::max_pool; all three channels-last without gaps. T is any float type;
// sums of narrow ones are float.
template <class T, class I>
void max_pool_rows(const Geometry& g, const T* x, T* y, I* chosen);
template <class T, class I>
void max_pool_rows_grad(const Geometry& g, const T* dy, const I* chosen, T* dx);

}  // namespace sotto
