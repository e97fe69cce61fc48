// Writes pictures as PNG.
#pragma once

#include <string>

#include "core/tensor.h"

namespace sotto {

// The bytes of a PNG file with a picture [c, h, w] f32 of values in [0, 1] on the CPU: grey for c =
// 1, red, green and blue for c = 3. Values are limited to [0, 1] and rounded to 8 bits, so that the
// picture is read back within 1/510. Throws std::invalid_argument for another shape or dtype.
std::string encode_png(const Tensor& picture);

}  // namespace sotto
