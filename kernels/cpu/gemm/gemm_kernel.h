// One matrix product on the calling thread, from which the portable engine builds products and
// convolutions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/tensor.h"
#include "kernels/cpu/gemm/row_of_panels.h"

namespace sotto {

// A matrix whose element (i, j) is at data + i row_stride + j col_stride, counted in elements.
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

// c = a b, or c += a b if `add`: computed in double if any of the three is f64, in float otherwise.
// 16-bit factors are read as they lie. The bits of an element depend only on its row of a and its
// column of b, not on the number or layout of rows and columns; zeros at their ends change nothing.
void product(const Matrix& a, const Matrix& b, bool add, const Matrix& c);

// c = from + a b, where `from` has the size and the type of c, and may repeat one row.
void product_from(const Matrix& from, const Matrix& a, const Matrix& b, const Matrix& c);

// A tile of product number `product`; its rows lie `step` apart.
struct ProductTile {
  std::int64_t product, row, column, rows, columns;
  const float* values;
  std::int64_t step;
};

// A matrix that is packed once, on all threads, for several products in f32 or f64. One of few
// columns is used in place, too, and has to live as long.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `sums` is the type of the products.
  PackedMatrix(const Matrix& b, Dtype sums);

 private:
  friend void product(const Matrix& a, const PackedMatrix& b, bool add, const Matrix& c);
  friend void product_tiles(std::span<const Matrix> a, std::span<const PackedMatrix> b,
                            const std::function<void(const ProductTile&)>& use);
  Matrix b_;
  std::unique_ptr<Storage> panels_;
};

// product() with b in the place of its matrix. The type of c is that of the sums, and its rows lie
// together; a may have 16 bits.
void product(const Matrix& a, const PackedMatrix& b, bool add, const Matrix& c);

// Computes products a[n] b[n] in f32, all of one size and of at most product_chain terms: calls
// use() for a tile of each of them, then for the next tile of each. A tile is in the first-level
// cache, and lives until use() returns.
void product_tiles(std::span<const Matrix> a, std::span<const PackedMatrix> b,
                   const std::function<void(const ProductTile&)>& use);

// product() with a b of which `write` writes each row. The type of a, c and the rows is T, float or
// double, and the rows of c lie together.
template <class T>
void product_of_rows(const Matrix& a, const tiles::RowWriter<T>& write, bool add, const Matrix& c);

// Scratch memory for a row-major matrix, initially zeros.
class Scratch {
 public:
  Scratch(std::int64_t rows, std::int64_t cols, Dtype dtype);
  const Matrix& matrix() const { return matrix_; }

 private:
  Storage storage_;
  Matrix matrix_;
};

// to = from, with equal sizes; converts the type.
void copy_matrix(const Matrix& from, const Matrix& to);

// A batch of products as one product if they share b and the rows of a and of c are evenly spaced
// over the batch; otherwise unchanged.
struct Product {
  View a, b, c;
  bool add;
  std::int64_t batch() const { return c.rank == 3 ? c.size[0] : 1; }
};
Product fold_batch(const Product& p);

}  // namespace sotto
