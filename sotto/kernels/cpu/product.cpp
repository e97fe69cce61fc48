#include "sotto/kernels/cpu/product.h"

#include <algorithm>
#include <optional>

#include <Eigen/Core>

#include "sotto/core/tensor.h"

namespace sotto {
namespace {

bool by_rows(const Matrix& x) { return x.col_stride == 1 || x.cols == 1; }
bool by_columns(const Matrix& x) { return x.row_stride == 1 || x.rows == 1; }

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

// The same elements, seen so that rows are the slower axis.
Matrix rows_outside(const Matrix& x) { return x.row_stride < x.col_stride ? x.transposed() : x; }

// x as elements of type T that Eigen can map: x itself, or a copy in `scratch`.
template <class T>
Matrix mappable(const Matrix& x, std::optional<Storage>& scratch) {
  if (x.dtype == dtype_of<T>() && (by_rows(x) || by_columns(x))) return x;
  const Matrix from = rows_outside(x);
  scratch.emplace(static_cast<std::size_t>(x.rows * x.cols) * sizeof(T), cpu);
  const Matrix to{scratch->data(), dtype_of<T>(), from.rows, from.cols, from.cols, 1};
  dispatch_float(x.dtype,
                 [&]<class From>(std::type_identity<From>) { convert<From, T>(from, to); });
  return x.row_stride < x.col_stride ? to.transposed() : to;
}

template <class T, int Order>
auto map(const Matrix& x) {
  using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Order>;
  const auto outer = Order == Eigen::RowMajor ? x.row_stride : x.col_stride;
  return Eigen::Map<Dense, 0, Eigen::OuterStride<>>(static_cast<T*>(x.data), x.rows, x.cols,
                                                    Eigen::OuterStride<>(outer));
}

template <class T, class F>
void with_map(const Matrix& x, F&& f) {
  if (by_rows(x)) {
    f(map<T, Eigen::RowMajor>(x));
  } else {
    f(map<T, Eigen::ColMajor>(x));
  }
}

// c is row-major, everything has elements of type T.
template <class T>
void multiply(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  auto y = map<T, Eigen::RowMajor>(c);
  with_map<T>(a, [&](const auto& left) {
    with_map<T>(b, [&](const auto& right) {
      if (add) {
        y.noalias() += left * right;
      } else {
        y.noalias() = left * right;
      }
    });
  });
}

// Through a T copy of c, for a c of another type.
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
  const Matrix left = mappable<T>(a, a_scratch);
  const Matrix right = mappable<T>(b, b_scratch);
  if (c.dtype == dtype_of<T>()) {
    multiply<T>(left, right, add, c);
  } else {
    multiply_narrow<T>(left, right, add, c);
  }
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
  if (!by_rows(c)) return product(b.transposed(), a.transposed(), add, c.transposed());
  const auto is_double = [](const Matrix& x) { return x.dtype == Dtype::f64; };
  if (is_double(a) || is_double(b) || is_double(c)) {
    product_in<double>(a, b, add, c);
  } else {
    product_in<float>(a, b, add, c);
  }
}

}  // namespace sotto
