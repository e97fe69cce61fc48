// Convolutions of which each position sees one pixel, its own: products of matrices.
#pragma once

#include "kernels/cpu/conv/conv_images.h"

namespace sotto {

// True for a window of one pixel, without groups, strides and padding, over few enough positions
// that products take less time than oneDNN's weight gradients: half of it over 4 x 4 positions, as
// much over 16 x 16.
bool sums_as_product(const Geometry& g);
// dw [o, c] = the sum over `samples` of their weight gradients.
void sum_as_product(const View& dy, const View& x, const Geometry& g, Range samples, float* dw);

}  // namespace sotto
