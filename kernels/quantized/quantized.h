// Matrices of quantised blocks as operands, on the CPU. A product widens some rows of blocks at a
// time into a panel that fits in the cache, and multiplies that.
#pragma once

#include "core/block_matrix.h"
#include "kernels/cpu/gemm/gemm_kernel.h"

namespace sotto {

// The values, f32 [rows, columns].
Tensor dequantize(const BlockMatrix& matrix);
// The rows of these numbers, f32 [ids, columns]; ids are i64 of any shape. Throws
// std::invalid_argument for a number outside the matrix.
Tensor dequantize_rows(const BlockMatrix& matrix, const Tensor& ids);

// y[.., o] = sum_i x[.., i] w[o, i], in the type of x: with the bits of gemm() by the widened and
// converted matrix. A row's bits do not depend on other rows.
Tensor multiply_blocks(const Tensor& x, const BlockMatrix& w);
// dx[.., i] = sum_o dy[.., o] w[o, i], in the type of dy: with the bits of gemm(), too, unless w
// has more rows than a panel of 16 bits. A row's bits do not depend on other rows either.
Tensor multiply_blocks_transposed(const Tensor& dy, const BlockMatrix& w);

// Part of a matrix of blocks; columns are whole parts of blocks (block_formats.h).
struct BlockRange {
  std::int64_t row, rows, column, columns;
};
// to[r, c] = w[row + r, column + c], converted to the type of `to`, whose rows have no gaps.
void widen(const BlockMatrix& w, const BlockRange& range, const Matrix& to);

}  // namespace sotto
