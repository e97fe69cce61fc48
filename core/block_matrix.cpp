#include "core/block_matrix.h"

#include "core/error.h"

namespace sotto {

const char* name(BlockFormat format) {
  switch (format) {
    case BlockFormat::q8_0: return "Q8_0";
    case BlockFormat::q4_0: return "Q4_0";
    case BlockFormat::q4_1: return "Q4_1";
    case BlockFormat::q4_k: return "Q4_K";
    case BlockFormat::q6_k: return "Q6_K";
  }
  return "an unknown format";
}

BlockSize block_size(BlockFormat format) {
  switch (format) {
    case BlockFormat::q8_0: return {32, 34};
    case BlockFormat::q4_0: return {32, 18};
    case BlockFormat::q4_1: return {32, 20};
    case BlockFormat::q4_k: return {256, 144};
    case BlockFormat::q6_k: return {256, 210};
  }
  check(false, "blocks: {} is no format", static_cast<int>(format));
  return {};
}

std::int64_t row_bytes(const char* op, BlockFormat format, std::int64_t columns) {
  const BlockSize block = block_size(format);
  check(columns >= 0 && columns % block.values == 0,
        "{}: rows of {} values are not whole blocks of {} in {}", op, columns, block.values,
        name(format));
  return columns / block.values * block.bytes;
}

void check_blocks(const char* op, const BlockMatrix& matrix) {
  check(matrix.shape.rank() == 2, "{}: blocks of shape {} are no matrix", op, matrix.shape);
  const Tensor& bytes = matrix.bytes;
  check(bytes.defined() && bytes.dtype() == Dtype::u8, "{}: blocks are not bytes", op);
  const Shape needed{matrix.rows(), row_bytes(op, matrix.format, matrix.columns())};
  check(bytes.shape() == needed, "{}: {} bytes for {} of shape {}, which needs {}", op,
        bytes.shape(), name(matrix.format), matrix.shape, needed);
  check(bytes.device() == cpu && bytes.contiguous(),
        "{}: blocks must be row-major and on the CPU, where their products are computed", op);
}

}  // namespace sotto
