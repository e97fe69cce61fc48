// Pooling of channels-last images by rows of pixels: the innermost loops run over whole rows of
// channels, or over the channels of one pixel, with all tests of the window outside of them.
#pragma once

#include "kernels/cpu/conv/conv_images.h"

namespace sotto {

// Max pooling: y and chosen as in Backend::max_pool; average pooling: as in Backend::avg_pool. All
// images are channels-last without gaps. T is any float type; 16-bit values are summed in float.
template <class T, class I>
void max_pool_rows(const Geometry& g, const T* x, T* y, I* argmax);
template <class T, class I>
void max_pool_rows_grad(const Geometry& g, const T* dy, const I* argmax, T* dx);
template <class T>
void avg_pool_rows(const Geometry& g, const T* x, bool count_padding, T* y);
template <class T>
void avg_pool_rows_grad(const Geometry& g, const T* dy, bool count_padding, T* dx);

}  // namespace sotto
