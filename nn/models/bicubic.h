// Bicubic interpolation (Keys 1981), of pixels and of positions.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace sotto::nn {

// `smooth`, as Pillow's and as PyTorch's with antialias: a = -1/2, a kernel as wide as a new pixel
// where pixels become fewer, and no weight beyond the border. `plain`, as PyTorch's without: a =
// -3/4, four pixels, and that at the border in the place of those beyond.
enum class Bicubic { smooth, plain };

// The weights f32 [out, in] that resize an axis.
Tensor bicubic_weights(std::int64_t in, std::int64_t out, Bicubic kind);

// A table [1, first + rows columns, features] of `first` rows without a place and a grid of others,
// row by row, for a grid of another size; on the CPU, in f32. `from` and `to`: [rows, columns].
Tensor bicubic_table(const Tensor& table, std::int64_t first, const Shape& from, const Shape& to,
                     Bicubic kind);

}  // namespace sotto::nn
