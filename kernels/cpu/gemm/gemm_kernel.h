// One matrix product on the calling thread, from which the portable engine builds products and
// convolutions.
#pragma once

#include <cstdint>

#include "core/tensor.h"

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
