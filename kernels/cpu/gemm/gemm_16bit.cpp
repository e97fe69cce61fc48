// Products of 16-bit matrices, where the processor has no instructions for pairs of terms
// (pair_product.h), by tiles of one size. Few values are in f32 at a time. All tiles have
// equal sizes, so the bits of a sample's rows do not depend on the batch; otherwise its size and
// other samples could show in every value, through a single rounding of 2^-9.
#include <algorithm>

#include "core/tensor.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/grain.h"

namespace sotto {

namespace {

// Sizes of a tile of c. The last tile of rows is padded, so that all products have equal sizes.
constexpr std::int64_t tile_rows = 64, tile_columns = 256;

bool is_16bit(const View& v) { return v.dtype == Dtype::f16 || v.dtype == Dtype::bf16; }

// y = x, or y += x, for the elements of x; y may be larger. The inner loop follows x's smaller
// stride.
template <class From, class To>
void move(const Matrix& x, bool add, const Matrix& y) {
  if (x.row_stride < x.col_stride) return move<From, To>(x.transposed(), add, y.transposed());
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const From* from = static_cast<const From*>(x.data) + i * x.row_stride;
    To* to = static_cast<To*>(y.data) + i * y.row_stride;
    if (!add && x.col_stride == 1 && y.col_stride == 1) {
      simd_dispatch([&] {
        for (std::int64_t j = 0; j < x.cols; ++j) to[j] = To(acc_t<To>(acc_t<From>(from[j])));
      });
      continue;
    }
    for (std::int64_t j = 0; j < x.cols; ++j) {
      To& slot = to[j * y.col_stride];
      const acc_t<To> value = acc_t<To>(acc_t<From>(from[j * x.col_stride]));
      slot = To(add ? acc_t<To>(slot) + value : value);
    }
  }
}

void move_any(const Matrix& x, bool add, const Matrix& y) {
  dispatch_float(x.dtype, [&]<class From>(std::type_identity<From>) {
    dispatch_float(y.dtype, [&]<class To>(std::type_identity<To>) { move<From, To>(x, add, y); });
  });
}

// The tiles of c, counted down its columns, item by item.
struct Tiles {
  explicit Tiles(const Product& p) : folded(p) {
    const Matrix c = matrix(p.c, 0);
    down = (c.rows + tile_rows - 1) / tile_rows;
    across = (c.cols + tile_columns - 1) / tile_columns;
    // All rows of one item of a batch belong to one sample; a tile never joins the rows of two
    // items.
    height = folded.c.rank == 3 ? std::min(tile_rows, c.rows) : tile_rows;
  }
  Product folded;
  std::int64_t down, across, height;
};

// Computes the tiles first .. last - 1 of one column of one item.
void multiply_column(const Tiles& tiles, std::int64_t column, std::int64_t first,
                     std::int64_t last) {
  const std::int64_t item = column / tiles.across, at = column % tiles.across * tile_columns;
  const Matrix a = matrix(tiles.folded.a, item), c = matrix(tiles.folded.c, item);
  const std::int64_t width = std::min(tile_columns, c.cols - at);
  const Scratch weights(a.cols, width, Dtype::f32), full(tiles.height, a.cols, Dtype::f32),
      result(tiles.height, width, Dtype::f32);
  copy_matrix(matrix(tiles.folded.b, item).column_block(at, width), weights.matrix());
  for (std::int64_t tile = first; tile < last; ++tile) {
    const std::int64_t row = tile * tile_rows, count = std::min(tile_rows, c.rows - row);
    // Further rows are those of the tile before, whose results are not used.
    copy_matrix(a.row_block(row, count), full.matrix().row_block(0, count));
    product(full.matrix(), weights.matrix(), false, result.matrix());
    move_any(result.matrix().row_block(0, count), tiles.folded.add,
             c.row_block(row, count).column_block(at, width));
  }
}

}  // namespace

Scratch::Scratch(std::int64_t rows, std::int64_t cols, Dtype dtype)
    : storage_(static_cast<std::size_t>(rows * cols) * size_of(dtype), cpu),
      matrix_{storage_.data(), dtype, rows, cols, cols, 1} {
  std::fill_n(static_cast<char*>(storage_.data()), storage_.bytes(), char{0});
}

void copy_matrix(const Matrix& from, const Matrix& to) { move_any(from, false, to); }

bool are_16bit(const View& a, const View& b, const View& c) {
  const bool wide = a.dtype == Dtype::f64 || b.dtype == Dtype::f64 || c.dtype == Dtype::f64;
  return !wide && (is_16bit(a) || is_16bit(b) || is_16bit(c));
}

void gemm_16bit(const View& a, const View& b, bool add, const View& c) {
  if (c.numel() == 0) return;
  const Tiles tiles(fold_batch({a, b, c, add}));
  const std::int64_t count = tiles.folded.batch() * tiles.across * tiles.down;
  const std::int64_t work = tiles.height * std::min(tile_columns, matrix(tiles.folded.c, 0).cols) *
                            matrix(tiles.folded.a, 0).cols;
  parallel_for(count, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t column = begin / tiles.down, first = begin % tiles.down;
      const std::int64_t last = std::min(tiles.down, first + end - begin);
      multiply_column(tiles, column, first, last);
      begin += last - first;
    }
  });
}

}  // namespace sotto
