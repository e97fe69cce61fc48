// Random matrices of quantised blocks.
#pragma once

#include <cstring>
#include <vector>

#include "core/block_matrix.h"
#include "core/random/philox.h"

namespace sotto {

inline constexpr BlockFormat block_formats[] = {
    BlockFormat::q8_0, BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q4_k, BlockFormat::q6_k};

// Where the numbers in f16 of a block begin, in bytes: d, and m of formats that have it.
inline std::vector<std::int64_t> scale_offsets(BlockFormat format) {
  switch (format) {
    case BlockFormat::q4_1:
    case BlockFormat::q4_k: return {0, 2};
    case BlockFormat::q6_k: return {208};
    default: return {0};
  }
}

inline void set_scale(std::uint8_t* at, f16 scale) { std::memcpy(at, &scale.bits, 2); }

// Any bytes, with finite scales: values are below 2 in size.
inline BlockMatrix random_blocks(PublicRandom& random, BlockFormat format, std::int64_t rows,
                                 std::int64_t columns) {
  const BlockSize block = block_size(format);
  const std::int64_t row = row_bytes("random_blocks", format, columns);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * row));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
  const bool nested = format == BlockFormat::q4_k || format == BlockFormat::q6_k;
  const double range = (format == BlockFormat::q8_0 ? 1.0 / 128 : 1.0 / 16) / (nested ? 64 : 1);
  for (std::int64_t at = 0; at < rows * row; at += block.bytes) {
    for (const std::int64_t offset : scale_offsets(format))
      set_scale(bytes.data() + at + offset, f16(static_cast<float>(range * random.uniform())));
  }
  return {format, {rows, columns}, Tensor::from(bytes, {rows, row})};
}

}  // namespace sotto
