#include "kernels/cpu/gemm/gemm_kernel.h"

#include <optional>

#include "core/tensor.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/gemv.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/cpu/gemm/pair_product.h"

namespace sotto {
namespace {

template <class From, class To>
void convert(const Matrix& x, const Matrix& y) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const From* from = static_cast<const From*>(x.data) + i * x.row_stride;
    To* to = static_cast<To*>(y.data) + i * y.row_stride;
    for (std::int64_t j = 0; j < x.cols; ++j) {
      to[j * y.col_stride] = static_cast<To>(static_cast<acc_t<From>>(from[j * x.col_stride]));
    }
  }
}

// x or its transpose, whichever has the rows as its slower axis.
Matrix rows_outside(const Matrix& x) { return x.row_stride < x.col_stride ? x.transposed() : x; }

// x as elements of type T: x itself, or a copy in `scratch`.
template <class T>
Matrix in_type(const Matrix& x, std::optional<Storage>& scratch) {
  if (x.dtype == dtype_of<T>()) return x;
  const Matrix from = rows_outside(x);
  scratch.emplace(static_cast<std::size_t>(x.rows * x.cols) * sizeof(T), cpu);
  const Matrix to{scratch->data(), dtype_of<T>(), from.rows, from.cols, from.cols, 1};
  dispatch_float(x.dtype,
                 [&]<class From>(std::type_identity<From>) { convert<From, T>(from, to); });
  return x.row_stride < x.col_stride ? to.transposed() : to;
}

template <class T, class X = T>
tiles::Strided<X> strided(const Matrix& x) {
  return {static_cast<T*>(x.data), x.row_stride, x.col_stride};
}

// Multiplies with vectors of `Bytes` bytes.
template <class T, int Bytes, class Dispatch>
void multiply_by(const Dispatch& dispatch, const Matrix& a, const Matrix& b, bool add,
                 const Matrix& c) {
  using R = tiles::Registers<T, Bytes>;
  const tiles::Strided<const T> x = strided<T, const T>(a), y = strided<T, const T>(b);
  const tiles::Target<T> to{strided<T>(c), c.cols, add};
  if (c.rows == 1 && tiles::suits_gemv<R>(y, c.cols))
    return dispatch([&] { tiles::gemv<R>(a.cols, x, y, to); });
  tiles::Workspace<R> memory;  // on the stack: used by this thread only, and freed when it returns
  dispatch([&] { tiles::multiply<R>(c.rows, a.cols, x, y, to, memory); });
}

// Multiplies operands that all have elements of type T.
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

// Multiplies into a T copy of c, for a c of another type.
template <class T>
void multiply_narrow(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  const Storage scratch(static_cast<std::size_t>(c.rows * c.cols) * sizeof(T), cpu);
  const Matrix wide{scratch.data(), dtype_of<T>(), c.rows, c.cols, c.cols, 1};
  dispatch_float(c.dtype, [&]<class To>(std::type_identity<To>) {
    if (add) convert<To, T>(c, wide);
    multiply<T>(a, b, add, wide);
    convert<T, To>(wide, c);
  });
}

template <class T>
void product_in(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  std::optional<Storage> a_scratch, b_scratch;
  const Matrix left = in_type<T>(a, a_scratch);
  const Matrix right = in_type<T>(b, b_scratch);
  if (c.dtype == dtype_of<T>()) {
    multiply<T>(left, right, add, c);
  } else {
    multiply_narrow<T>(left, right, add, c);
  }
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
  if (is_double(a) || is_double(b) || is_double(c)) return product_in<double>(a, b, add, c);
  const PairKernel* const pairs = pair_kernel();
  if (pairs && a.dtype == Dtype::bf16 && b.dtype == Dtype::bf16)
    return pair_product(*pairs, a, b, add, c);
  product_in<float>(a, b, add, c);
}

}  // namespace sotto
