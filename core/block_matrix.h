// Matrices whose rows lie in memory as quantised blocks, as in GGUF files: each block has a few
// numbers of 4 to 8 bits for its values, and their scale.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace sotto {

// A format of ggml, by its name there. A block holds, with d and m in f16 (q6_k: d after the rest):
// q8_0: 32 values d q;      d, 32 bytes q
// q4_0: 32 values d (q - 8); d, 16 bytes: the low halves are values 0 .. 15, the high ones 16 .. 31
// q4_1: 32 values d q + m;  d, m, and 16 bytes as in q4_0
// q4_k: 256 values, 8 parts of 32: d s q - m u; d, m, 12 bytes of the 6-bit s and u, 128 of q
// q6_k: 256 values, 16 parts of 16: d s (q - 32); 128 bytes of low bits, 64 of high, 16 of s, d
enum class BlockFormat { q8_0, q4_0, q4_1, q4_k, q6_k };

// As GGUF spells it: "Q8_0".
const char* name(BlockFormat format);

// The numbers of one block.
struct BlockSize {
  std::int64_t values, bytes;
};
BlockSize block_size(BlockFormat format);

// A matrix [rows, columns] of blocks, which do not reach from one row into the next.
struct BlockMatrix {
  BlockFormat format = BlockFormat::q8_0;
  Shape shape = {};   // [rows, columns]
  Tensor bytes = {};  // u8 [rows, row_bytes(format, columns)], row-major, on the CPU

  std::int64_t rows() const { return shape[0]; }
  std::int64_t columns() const { return shape[1]; }
};

// The bytes of a row. Throws std::invalid_argument, naming `op`, where the columns are not whole
// blocks.
std::int64_t row_bytes(const char* op, BlockFormat format, std::int64_t columns);

// Throws std::invalid_argument, naming `op`, unless shape and bytes fit each other and the bytes
// are row-major and on the CPU.
void check_blocks(const char* op, const BlockMatrix& matrix);

}  // namespace sotto
