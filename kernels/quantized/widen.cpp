#include <algorithm>

#include "core/error.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/quantized/block_formats.h"
#include "kernels/quantized/quantized.h"

namespace sotto {

namespace {

// Columns first .. first + count - 1 of the row whose blocks begin at `row`.
template <class Format, int lanes>
void widen_parts(const std::uint8_t* row, const BlockSize& block, std::int64_t first,
                 std::int64_t count, float* to) {
  constexpr std::int64_t values = Format::part_values;
  const std::int64_t parts = block.values / values;
  for (std::int64_t part = first / values; part < (first + count) / values; ++part, to += values)
    Format::template widen<blocks::Lanes<lanes>, lanes>(row + part / parts * block.bytes,
                                                        static_cast<int>(part % parts), to);
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

// Columns first .. first + count - 1 of one row.
void widen_row(const BlockMatrix& w, std::int64_t row, std::int64_t first, std::int64_t count,
               float* to) {
  const BlockSize block = block_size(w.format);
  const std::uint8_t* const from =
      w.bytes.data<std::uint8_t>() + row * (w.columns() / block.values * block.bytes);
  blocks::dispatch_format(w.format, [&]<class Format>(std::type_identity<Format>) {
    by_lanes([&]<int lanes>(std::integral_constant<int, lanes>) {
      widen_parts<Format, lanes>(from, block, first, count, to);
    });
  });
}

// The same in another type, some values at a time.
template <class T>
void widen_row_in(const BlockMatrix& w, std::int64_t row, std::int64_t first, std::int64_t count,
                  T* to) {
  constexpr std::int64_t some = 512;
  float wide[some];
  for (std::int64_t done = 0; done < count; done += some) {
    const std::int64_t now = std::min(some, count - done);
    widen_row(w, row, first + done, now, wide);
    simd_dispatch([&] {
      for (std::int64_t j = 0; j < now; ++j) to[done + j] = T(wide[j]);
    });
  }
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
  dispatch_float(to.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t row = 0; row < range.rows; ++row) {
      T* const values = static_cast<T*>(to.data) + row * to.row_stride;
      if constexpr (std::is_same_v<T, float>)
        widen_row(w, range.row + row, range.column, range.columns, values);
      else
        widen_row_in(w, range.row + row, range.column, range.columns, values);
    }
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
