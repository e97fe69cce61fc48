// Matrix products in f32 by oneDNN.
#pragma once

#include "sotto/kernels/cpu/product.h"

namespace sotto {

// One on the calling thread; where the strides or the sizes suit Eigen better, its.
void onednn_product(const Matrix& a, const Matrix& b, bool add, const Matrix& c);

}  // namespace sotto
