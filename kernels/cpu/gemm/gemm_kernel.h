// One matrix product on the calling thread: what the portable engine's products and convolutions
// are made of.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"

namespace sotto {

// Element (i, j) lies at data + i row_stride + j col_stride, counted in elements.
struct Matrix {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  Matrix row_block(std::int64_t first, std::int64_t count) const;
  Matrix column_block(std::int64_t first, std::int64_t count) const {
    return transposed().row_block(first, count).transposed();
  }
  Matrix transposed() const { return {data, dtype, cols, rows, col_stride, row_stride}; }
};

// The last two axes of a view of rank 2, or of item `index` of a batch.
Matrix matrix(const View& view, std::int64_t index);

// c = a b, or c += a b when `add`: in double if any of the three is f64, in float otherwise. The
// bits of an element depend on its row of a and its column of b alone, not on how many others there
// are nor on how any of them lie; zeros at their ends change nothing.
void product(const Matrix& a, const Matrix& b, bool add, const Matrix& c);

// Scratch for a row-major matrix, zeros at first.
class Scratch {
 public:
  Scratch(std::int64_t rows, std::int64_t cols, Dtype dtype);
  const Matrix& matrix() const { return matrix_; }

 private:
  Storage storage_;
  Matrix matrix_;
};

// to = from, of the same sizes; converts the type.
void copy_matrix(const Matrix& from, const Matrix& to);

// Products with one and the same b, for any a: c = a b; c row-major in f32.
using TileProduct = std::function<void(const Matrix& a, const Matrix& c)>;
// Makes one for some columns of b and an a of so many rows.
using PrepareTile = TileProduct (*)(const Matrix& b, std::int64_t rows);
// Through f32 copies of b, and of each a.
TileProduct prepare_tile(const Matrix& b, std::int64_t rows);

// The same with 16-bit operands, none of them f64, by tiles: what is in f32 at a time is a part of
// b and some rows of a and c. A row of c has the same bits however many rows there are, and
// wherever it is among them.
void narrow_gemm_by(PrepareTile prepare, const View& a, const View& b, bool add, const View& c);
// Whether it is for these.
bool narrow_operands(const View& a, const View& b, const View& c);

// One product over all items of a batch where these share b and the rows of a and c follow on;
// otherwise as it is.
struct Product {
  View a, b, c;
  bool add;
  std::int64_t batch() const { return c.rank == 3 ? c.size[0] : 1; }
};
Product fold_batch(const Product& p);

}  // namespace sotto
