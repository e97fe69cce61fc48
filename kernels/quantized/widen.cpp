#include "core/error.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/quantized/block_formats.h"
#include "kernels/quantized/quantized.h"

namespace sotto {

namespace {

// One row of a range; `row` is where its blocks begin.
template <class Format, class T, int lanes>
void widen_row(const std::uint8_t* row, const BlockSize& block, std::int64_t first,
               std::int64_t count, T* to) {
  constexpr std::int64_t values = Format::part_values;
  const std::int64_t parts = block.values / values;
  for (std::int64_t part = first / values; part < (first + count) / values; ++part, to += values) {
    const std::uint8_t* const from = row + part / parts * block.bytes;
    const int within = static_cast<int>(part % parts);
    if constexpr (std::is_same_v<T, float>) {
      Format::template widen<blocks::Lanes<lanes>, lanes>(from, within, to);
    } else {
      float wide[values];
      Format::template widen<blocks::Lanes<lanes>, lanes>(from, within, wide);
      for (std::int64_t j = 0; j < values; ++j) to[j] = T(wide[j]);
    }
  }
}

// Calls f(lanes) with as many lanes as the processor's vectors have.
template <class F>
void by_lanes(const F& f) {
#if defined(__x86_64__)
  if (has_avx512()) return in_avx512([&] { f(std::integral_constant<int, 16>{}); });
  if (has_avx2()) return in_avx2([&] { f(std::integral_constant<int, 8>{}); });
#endif
  f(std::integral_constant<int, 4>{});
}

Tensor rows_of(const BlockMatrix& matrix, std::int64_t rows,
               const std::function<std::int64_t(std::int64_t)>& number) {
  const Tensor y = Tensor::empty({rows, matrix.columns()});
  const Matrix to = sotto::matrix(y.view(), 0);
  const std::int64_t columns = matrix.columns();
  parallel_for(rows, 1 + elementwise_grain / std::max<std::int64_t>(1, columns),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   widen(matrix, {number(row), 1, 0, columns}, to.row_block(row, 1));
               });
  return y;
}

}  // namespace

void widen(const BlockMatrix& w, const BlockRange& range, const Matrix& to) {
  const BlockSize block = block_size(w.format);
  const std::int64_t step = w.columns() / block.values * block.bytes;
  const std::uint8_t* const first = w.bytes.data<std::uint8_t>() + range.row * step;
  blocks::dispatch_format(w.format, [&]<class Format>(std::type_identity<Format>) {
    dispatch_float(to.dtype, [&]<class T>(std::type_identity<T>) {
      const auto rows = [&]<int lanes>(std::integral_constant<int, lanes>) {
        for (std::int64_t row = 0; row < range.rows; ++row)
          widen_row<Format, T, lanes>(first + row * step, block, range.column, range.columns,
                                      static_cast<T*>(to.data) + row * to.row_stride);
      };
      by_lanes(rows);
    });
  });
}

Tensor dequantize(const BlockMatrix& matrix) {
  check_blocks("dequantize", matrix);
  return rows_of(matrix, matrix.rows(), [](std::int64_t row) { return row; });
}

Tensor dequantize_rows(const BlockMatrix& matrix, const Tensor& ids) {
  check_blocks("dequantize_rows", matrix);
  const std::vector<std::int64_t> numbers = ids.to_vector<std::int64_t>();
  for (const std::int64_t id : numbers)
    check(id >= 0 && id < matrix.rows(), "embedding: id {} in a table of {} rows", id,
          matrix.rows());
  return rows_of(matrix, std::ssize(numbers),
                 [&](std::int64_t row) { return numbers[static_cast<std::size_t>(row)]; });
}

}  // namespace sotto
