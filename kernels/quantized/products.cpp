#include <algorithm>

#include "core/devices.h"
#include "core/error.h"
#include "core/threads/parallel.h"
#include "kernels/backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/quantized/block_formats.h"
#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The least columns that are widened alone.
std::int64_t part_values(const BlockMatrix& w) {
  return blocks::dispatch_format(w.format, []<class Format>(std::type_identity<Format>) {
    return std::int64_t{Format::part_values};
  });
}

// x [.., inner] as a matrix.
Tensor rows_of(const char* op, const Tensor& x, const BlockMatrix& w, std::int64_t inner) {
  check_blocks(op, w);
  check(x.device() == cpu,
        "{}: a value is on {}; products with {} are computed on the CPU alone, so widen the weight",
        op, name(x.device()), name(w.format));
  check(x.rank() >= 1 && x.shape().back() == inner, "{}: {} does not fit blocks of shape {}", op,
        x.shape(), w.shape);
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.rank(); ++axis) rows *= x.size(axis);
  return reshape(x, {rows, inner});
}

// The matrix y with the leading axes of x.
Tensor with_axes_of(const Tensor& x, const Tensor& y) {
  Shape shape = x.shape();
  shape[x.rank() - 1] = y.size(1);
  return reshape(y, shape);
}

// Calls f(first, count) for pieces of `size` of a range.
template <class F>
void for_pieces(std::int64_t begin, std::int64_t end, std::int64_t size, const F& f) {
  for (std::int64_t first = begin; first < end; first += size)
    f(first, std::min(size, end - first));
}

// Widening a block costs as much as multiplying it by so many rows.
constexpr std::int64_t widening = 8;

// A panel of some rows of w and of two chains of columns at most: chains of one element end at
// multiples of a chain in every way to add them.
void multiply_by_rows(const Matrix& x, const BlockMatrix& w, const Matrix& y) {
  constexpr std::int64_t unit = 16, few = 8, low = 2 * unit, high = 12 * unit,
                         terms = 2 * product_chain;
  const std::int64_t height = x.rows <= few ? low : high, columns = w.columns();
  parallel_for((w.rows() + unit - 1) / unit, product_grain(unit * columns * (x.rows + widening)),
               [&](std::int64_t begin, std::int64_t end) {
                 const Scratch scratch(height, std::min(columns, terms), x.dtype);
                 for_pieces(begin * unit, std::min(end * unit, w.rows()), height,
                            [&](std::int64_t row, std::int64_t rows) {
                              for_pieces(
                                  0, columns, terms, [&](std::int64_t column, std::int64_t count) {
                                    const Matrix panel =
                                        scratch.matrix().row_block(0, rows).column_block(0, count);
                                    widen(w, {row, rows, column, count}, panel);
                                    product(x.column_block(column, count), panel.transposed(),
                                            column > 0, y.column_block(row, rows));
                                  });
                            });
               });
}

// A panel of a chain of rows of w and of some columns.
void multiply_by_columns(const Matrix& dy, const BlockMatrix& w, const Matrix& dx) {
  constexpr std::int64_t width = 384;
  const std::int64_t unit = part_values(w);
  parallel_for(
      w.columns() / unit, product_grain(unit * w.rows() * (dy.rows + widening)),
      [&](std::int64_t begin, std::int64_t end) {
        const Scratch scratch(std::min(w.rows(), product_chain), width, dy.dtype);
        for_pieces(begin * unit, end * unit, width, [&](std::int64_t column, std::int64_t count) {
          for_pieces(0, w.rows(), product_chain, [&](std::int64_t row, std::int64_t rows) {
            const Matrix panel = scratch.matrix().row_block(0, rows).column_block(0, count);
            widen(w, {row, rows, column, count}, panel);
            product(dy.column_block(row, rows), panel, row > 0, dx.column_block(column, count));
          });
        });
      });
}

// Some rows of w in 16 bits, [rows, columns].
Tensor panel_of(const BlockMatrix& w, std::int64_t row, std::int64_t rows, Dtype dtype) {
  const Tensor panel = Tensor::empty({rows, w.columns()}, dtype);
  const Matrix to = matrix(panel.view(), 0);
  parallel_for(
      rows, 1 + elementwise_grain / std::max<std::int64_t>(1, w.columns()),
      [&](std::int64_t begin, std::int64_t end) {
        widen(w, {row + begin, end - begin, 0, w.columns()}, to.row_block(begin, end - begin));
      });
  return panel;
}

// Rows of a 16-bit panel: tiles of 256 columns of a product, of about two megabytes together. Sizes
// of w alone decide, so that a row's bits do not depend on the batch.
std::int64_t panel_rows(const BlockMatrix& w) {
  constexpr std::int64_t tile = 256, elements = 1 << 20;
  const std::int64_t of_tile = tile * std::max<std::int64_t>(1, w.columns());
  return (elements + of_tile - 1) / of_tile * tile;
}

// Zeros [rows of x, columns], which f fills unless a size is 0.
template <class F>
Tensor filled(const Tensor& x, std::int64_t columns, Dtype dtype, const F& f) {
  const Tensor y = zeros({x.size(0), columns}, dtype);
  if (y.numel() > 0 && x.size(1) > 0) f(y);
  return y;
}

}  // namespace

Tensor multiply_blocks(const Tensor& x, const BlockMatrix& w) {
  const Tensor a = rows_of("multiply_blocks", x, w, w.columns());
  const Tensor y = filled(a, w.rows(), x.dtype(), [&](const Tensor& all) {
    if (!is_16bit(x.dtype()))
      return multiply_by_rows(matrix(a.view(), 0), w, matrix(all.view(), 0));
    for_pieces(0, w.rows(), panel_rows(w), [&](std::int64_t row, std::int64_t rows) {
      const Tensor panel = panel_of(w, row, rows, x.dtype());
      backend(cpu).gemm(a.view(), panel.transpose(0, 1).view(), 0,
                        all.slice(1, row, row + rows).view());
    });
  });
  return with_axes_of(x, y);
}

Tensor multiply_blocks_transposed(const Tensor& dy, const BlockMatrix& w) {
  const Tensor b = rows_of("multiply_blocks_transposed", dy, w, w.rows());
  const bool whole = w.rows() <= panel_rows(w);  // else the panels' products are added in f32
  const Dtype sums = whole ? dy.dtype() : arithmetic_type(dy.dtype());
  const Tensor dx = filled(b, w.columns(), sums, [&](const Tensor& all) {
    if (!is_16bit(dy.dtype()))
      return multiply_by_columns(matrix(b.view(), 0), w, matrix(all.view(), 0));
    for_pieces(0, w.rows(), panel_rows(w), [&](std::int64_t row, std::int64_t rows) {
      const Tensor panel = panel_of(w, row, rows, dy.dtype());
      backend(cpu).gemm(b.slice(1, row, row + rows).view(), panel.view(), whole ? 0 : 1,
                        all.view());
    });
  });
  return with_axes_of(dy, to_dtype(dx, dy.dtype()));
}

}  // namespace sotto
