// Pooling of channels-last images, a row of pixels at a time: the innermost loops run over whole
// rows of channels, or over the channels of one pixel with what concerns the window settled before.
#pragma once

#include "kernels/cpu/conv/images.h"

namespace sotto {

// y and chosen as in Backend::max_pool, and the averages of Backend::avg_pool; all images
// channels-last without gaps. T is any float type; sums of narrow ones are float.
template <class T, class I>
void max_pool_rows(const Geometry& g, const T* x, T* y, I* chosen);
template <class T, class I>
void max_pool_rows_grad(const Geometry& g, const T* dy, const I* chosen, T* dx);
template <class T>
void avg_pool_rows(const Geometry& g, const T* x, bool count_padding, T* y);
template <class T>
void avg_pool_rows_grad(const Geometry& g, const T* dy, bool count_padding, T* dx);

}  // namespace sotto
