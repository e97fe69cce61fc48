#include "kernels/cpu/gemm/gemm_kernel.h"

#include <algorithm>
#include <optional>

#include "core/tensor.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/gemv.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/cpu/gemm/pair_product.h"

namespace sotto {
namespace {

// y = x. The inner loop follows x's smaller stride.
template <class From, class To>
void convert(const Matrix& x, const Matrix& y) {
  if (x.row_stride < x.col_stride) return convert<From, To>(x.transposed(), y.transposed());
  const bool by_rows = x.col_stride == 1 && y.col_stride == 1;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const From* from = static_cast<const From*>(x.data) + i * x.row_stride;
    To* to = static_cast<To*>(y.data) + i * y.row_stride;
    if (by_rows) {
      simd_dispatch([&] {
        for (std::int64_t j = 0; j < x.cols; ++j) to[j] = tiles::element_as<To>(from[j]);
      });
      continue;
    }
    for (std::int64_t j = 0; j < x.cols; ++j)
      to[j * y.col_stride] = tiles::element_as<To>(from[j * x.col_stride]);
  }
}

// x in f64: x itself, or a copy in `scratch`.
Matrix in_f64(const Matrix& x, std::optional<Scratch>& scratch) {
  if (x.dtype == Dtype::f64) return x;
  copy_matrix(x, scratch.emplace(x.rows, x.cols, Dtype::f64).matrix());
  return scratch->matrix();
}

template <class T>
tiles::Strided<T> strided(const Matrix& x) {
  return {static_cast<T*>(x.data), x.row_stride, x.col_stride};
}

tiles::Factor factor(const Matrix& x) { return {x.data, x.dtype, x.row_stride, x.col_stride}; }

// Multiplies with vectors of `Bytes` bytes.
template <class T, int Bytes, class Dispatch>
void multiply_by(const Dispatch& dispatch, const Matrix& a, const Matrix& b, bool add,
                 const Matrix& c) {
  using R = tiles::Registers<T, Bytes>;
  const tiles::Factor x = factor(a), y = factor(b);
  const tiles::Target<T> to{strided<T>(c), c.cols, add};
  const bool as_sums = a.dtype == c.dtype && b.dtype == c.dtype;
  if (c.rows == 1 && as_sums && tiles::suits_gemv<R>(y.elements<T>(), c.cols))
    return dispatch([&] { tiles::gemv<R>(a.cols, x.elements<T>(), y.elements<T>(), to); });
  tiles::Workspace<R> memory;  // on the stack: used by this thread only, and freed when it returns
  dispatch([&] { tiles::multiply<R>(c.rows, a.cols, x, y, to, memory); });
}

// Multiplies into a c of type T; 16-bit factors are packed as they lie for a T of f32.
template <class T>
void multiply(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  // If c is narrower than a vector, the vectors run along its longer axis.
  constexpr std::int64_t narrow = 32 / sizeof(T);
  if (c.cols < narrow && c.rows > c.cols)
    return multiply<T>(b.transposed(), a.transposed(), add, c.transposed());
#if defined(__x86_64__)
  if (has_avx512()) return multiply_by<T, 64>([](const auto& f) { in_avx512(f); }, a, b, add, c);
  if (has_avx2()) return multiply_by<T, 32>([](const auto& f) { in_avx2(f); }, a, b, add, c);
#endif
  multiply_by<T, 16>([](const auto& f) { f(); }, a, b, add, c);
}

// Multiplies into a c of another type, block by block of f32 or f64.
template <class T>
void multiply_narrow(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  constexpr std::int64_t most_rows = 528, most_columns = 480;
  const std::int64_t block_rows = std::min(most_rows, c.rows),
                     block_columns = std::min(most_columns, c.cols);
  const Storage scratch(static_cast<std::size_t>(block_rows * block_columns) * sizeof(T), cpu);
  for (std::int64_t j = 0; j < c.cols; j += block_columns) {
    const std::int64_t columns = std::min(block_columns, c.cols - j);
    const Matrix y = b.column_block(j, columns);
    for (std::int64_t i = 0; i < c.rows; i += block_rows) {
      const std::int64_t rows = std::min(block_rows, c.rows - i);
      const Matrix to = c.row_block(i, rows).column_block(j, columns),
                   sums{scratch.data(), dtype_of<T>(), rows, columns, columns, 1};
      if (add) copy_matrix(to, sums);
      multiply<T>(a.row_block(i, rows), y, add, sums);
      copy_matrix(sums, to);
    }
  }
}

template <class T>
void product_in(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  if (c.dtype == dtype_of<T>()) return multiply<T>(a, b, add, c);
  multiply_narrow<T>(a, b, add, c);
}

// Products of factors of which one is f64: the other is copied.
void product_in_f64(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  std::optional<Scratch> a_scratch, b_scratch;
  product_in<double>(in_f64(a, a_scratch), in_f64(b, b_scratch), add, c);
}

// The result of a product with no terms: zeros.
void clear(const Matrix& c) {
  dispatch_float(c.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j)
        static_cast<T*>(c.data)[i * c.row_stride + j * c.col_stride] = T(acc_t<T>(0));
    }
  });
}

}  // namespace

Scratch::Scratch(std::int64_t rows, std::int64_t cols, Dtype dtype)
    : storage_(static_cast<std::size_t>(rows * cols) * size_of(dtype), cpu),
      matrix_{storage_.data(), dtype, rows, cols, cols, 1} {
  std::fill_n(static_cast<char*>(storage_.data()), storage_.bytes(), char{0});
}

void copy_matrix(const Matrix& from, const Matrix& to) {
  dispatch_float(from.dtype, [&]<class From>(std::type_identity<From>) {
    dispatch_float(to.dtype,
                   [&]<class To>(std::type_identity<To>) { convert<From, To>(from, to); });
  });
}

Matrix Matrix::row_block(std::int64_t first, std::int64_t count) const {
  const auto offset = first * row_stride * static_cast<std::int64_t>(size_of(dtype));
  return {static_cast<char*>(data) + offset, dtype, count, cols, row_stride, col_stride};
}

Matrix matrix(const View& view, std::int64_t index) {
  const int axis = view.rank - 2;
  const std::int64_t offset = axis == 0 ? 0 : index * view.stride[0];
  char* first =
      static_cast<char*>(view.data) + offset * static_cast<std::int64_t>(size_of(view.dtype));
  return {first,
          view.dtype,
          view.size[axis],
          view.size[axis + 1],
          view.stride[axis],
          view.stride[axis + 1]};
}

void product(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  if (c.rows == 0 || c.cols == 0) return;
  if (a.cols == 0) {
    if (!add) clear(c);
    return;
  }
  if (c.col_stride > c.row_stride && c.rows > 1)
    return product(b.transposed(), a.transposed(), add, c.transposed());
  const auto is_double = [](const Matrix& x) { return x.dtype == Dtype::f64; };
  if (is_double(a) || is_double(b) || is_double(c)) return product_in_f64(a, b, add, c);
  const PairKernel* const pairs = pair_kernel();
  if (pairs && a.dtype == Dtype::bf16 && b.dtype == Dtype::bf16)
    return pair_product(*pairs, a, b, add, c);
  product_in<float>(a, b, add, c);
}

}  // namespace sotto
