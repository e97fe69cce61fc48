// Pictures of bytes as floats.
#pragma once

#include "core/tensor.h"

namespace sotto {

// y = x / 255 in f32, of the shape of the row-major u8 tensor x.
Tensor scaled_bytes(const Tensor& x);

}  // namespace sotto
