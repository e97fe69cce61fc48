// Tiles of bf16 products by oneDNN.
#pragma once

#include "sotto/kernels/cpu/product.h"

namespace sotto {

// As prepare_tile(), for an a of bf16 and a row-major c without gaps. Where b is not bf16 or the
// processor has no instructions for it, it is prepare_tile().
TileProduct prepare_bfloat_tile(const Matrix& b, std::int64_t rows);

}  // namespace sotto
