#include <algorithm>

#include "sotto/core/parallel.h"
#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/grain.h"
#include "sotto/kernels/cpu/product.h"
#include "sotto/kernels/fold_batch.h"

namespace sotto {
namespace {

// Rows or columns are dealt out in multiples of this, a multiple of common register tiles.
constexpr std::int64_t unit = 48;
// Rows that are no such multiple go by so many at a time: the fewest that are added up as many are.
constexpr std::int64_t tile = 16;

// [first, last)
struct Range {
  std::int64_t first;
  std::int64_t last;
};

// Row-major, the rows apart.
bool lies_by_rows(const Matrix& x) { return x.col_stride == 1 && x.row_stride >= x.cols; }

// Fewer rows than a tile.
void part_of_tile(ProductFunction product, const Matrix& a, const Matrix& b, bool add,
                  const Matrix& c) {
  const Scratch x(tile, a.cols, a.dtype), y(tile, c.cols, c.dtype);
  const Matrix own = y.matrix().row_block(0, c.rows);
  copy_matrix(a, x.matrix().row_block(0, a.rows));
  if (add) copy_matrix(c, own);
  product(x.matrix(), b, add, y.matrix());
  copy_matrix(own, c);
}

// Some rows of one item's c, or columns where these are more.
template <class F>
void part(const F& product, const Product& p, std::int64_t item, Range cut) {
  const Matrix a = matrix(p.a, item), b = matrix(p.b, item), c = matrix(p.c, item);
  const std::int64_t count = cut.last - cut.first;
  if (c.rows >= c.cols) {
    product(a.row_block(cut.first, count), b, c.row_block(cut.first, count));
  } else {
    product(a, b.column_block(cut.first, count), c.column_block(cut.first, count));
  }
}

}  // namespace

Product fold_batch(const Product& p) {
  Product folded = p;
  fold_batch(folded.a, folded.b, folded.c);
  return folded;
}

void product_of_tiles(ProductFunction product, const Matrix& a, const Matrix& b, bool add,
                      const Matrix& c) {
  // What lies otherwise is multiplied in another way: every tile is a copy, as the last one is.
  if (a.rows > 0 && a.cols > 0 && !lies_by_rows(a)) {
    constexpr std::int64_t some = 4 * unit;
    for (std::int64_t first = 0; first < a.rows; first += some) {
      const std::int64_t count = std::min(some, a.rows - first);
      const Scratch copy(count, a.cols, a.dtype);
      copy_matrix(a.row_block(first, count), copy.matrix());
      product_of_tiles(product, copy.matrix(), b, add, c.row_block(first, count));
    }
    return;
  }
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    if (count > 0) product(a.row_block(first, count), b, add, c.row_block(first, count));
  };
  std::int64_t done = c.rows / unit * unit;
  rows(0, done);
  for (; c.rows - done >= tile; done += tile) rows(done, tile);
  const std::int64_t rest = c.rows - done;
  if (rest > 0) part_of_tile(product, a.row_block(done, rest), b, add, c.row_block(done, rest));
}

void gemm_by(ProductFunction product, ProductFunction of_tiles, const View& a, const View& b,
             bool add, const View& c) {
  if (c.numel() == 0) return;
  const Product p = fold_batch({a, b, c, add});
  const bool tiles = of_tiles && p.c.rank == 2;
  const auto multiply = [&](const Matrix& x, const Matrix& w, const Matrix& y) {
    return tiles ? product_of_tiles(of_tiles, x, w, add, y) : product(x, w, add, y);
  };
  const Matrix y = matrix(p.c, 0);
  const std::int64_t longer = std::max(y.rows, y.cols), shorter = std::min(y.rows, y.cols);
  // What is left over goes with the last unit, so that nothing is one of few in one cut and one of
  // many in another; rows in tiles never are.
  const std::int64_t left_over = tiles && y.rows >= y.cols ? unit - 1 : 0;
  const std::int64_t units = std::max<std::int64_t>(1, (longer + left_over) / unit);
  const std::int64_t unit_work = shorter * std::min(unit, longer) * matrix(p.a, 0).cols;
  parallel_for(
      p.batch() * units, product_grain(unit_work), [&](std::int64_t begin, std::int64_t end) {
        while (begin < end) {
          const std::int64_t first = begin % units, last = std::min(units, first + end - begin);
          part(multiply, p, begin / units, {first * unit, last == units ? longer : last * unit});
          begin += last - first;
        }
      });
}

void CpuBackend::gemm(View a, View b, double beta, View c) {
  if (narrow_operands(a, b, c)) return narrow_gemm_by(prepare_tile, a, b, beta != 0, c);
  gemm_by(product, product, a, b, beta != 0, c);
}

void CpuBackend::outer_sum(View b, View a, double beta, View y) {
  if (narrow_operands(b, a, y)) return gemm(transposed(b), a, beta, y);
  gemm_by(product, nullptr, transposed(b), a, beta != 0, y);
}

}  // namespace sotto
