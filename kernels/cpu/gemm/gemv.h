// Products with one row (gemv), as in layers with a single output. Every element of b is used once,
// so b is read in place and not packed into panels. The chains of multiply-adds, and thus the bits,
// are those of microkernel.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/gemm/microkernel.h"

namespace sotto::tiles {

// For b with contiguous rows: tiles of `Vectors` vectors of columns, then of fewer. The last vector
// overlaps columns that are already done, so that it ends with the last column of b.
template <class R, int Vectors = 8, class T = typename R::T>
void row_of_tiles(std::int64_t terms, const Strided<const T>& a, const Strided<const T>& b,
                  const Target<T>& to, std::int64_t first = 0) {
  constexpr std::int64_t width = Vectors * R::lanes;
  for (; to.columns - first >= width; first += width)
    tile<R, 1, Vectors>(terms, a, b.at(0, first).data, b.row_stride, to.part(0, first, width));
  if constexpr (Vectors > 1) {
    row_of_tiles<R, Vectors / 2>(terms, a, b, to, first);
  } else if (first < to.columns) {
    T last[R::lanes];
    const T* const from = b.at(0, to.columns - R::lanes).data;
    tile<R, 1, 1>(terms, a, from, b.row_stride, {{last, R::lanes, 1}, R::lanes});
    put_each(last + R::lanes - (to.columns - first), to.part(0, first, to.columns - first));
  }
}

// Adds one square of transposed_chains()'s terms to the chains, without the first `used` terms.
template <class R, class Column, class T = typename R::T>
void transposed_square(const Column& column, const T* a, std::int64_t a_stride, int used,
                       typename R::Vector& sum) {
  using V = typename R::Vector;
  constexpr int n = R::lanes;
  V x[n];
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) x[j] = load<V>(column(j));
  transpose<R>(x);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if (i >= used) sum += (a[i * a_stride] - V{}) * x[i];
  }
}

// For b with contiguous columns: the lanes of a vector are the chains of several columns, whose
// terms are loaded in squares and transposed. The last square ends with the last term.
template <class R, class T = typename R::T>
typename R::Vector transposed_chains(std::int64_t terms, const Strided<const T>& a,
                                     const Strided<const T>& b, std::int64_t columns) {
  constexpr int n = R::lanes;
  const auto square = [&](std::int64_t k, int used, typename R::Vector& sum) {
    const auto column = [&](int j) { return b.at(k, std::min<std::int64_t>(j, columns - 1)).data; };
    transposed_square<R>(column, a.at(0, k).data, a.col_stride, used, sum);
  };
  typename R::Vector sum{};
  std::int64_t k = 0;
  for (; k + n <= terms; k += n) square(k, 0, sum);
  if (k > 0) {
    if (k < terms) square(terms - n, static_cast<int>(n - (terms - k)), sum);
    return sum;
  }
  for (; k < terms; ++k) {
    T some[n] = {};
    for (std::int64_t j = 0; j < columns; ++j) some[j] = *b.at(k, j).data;
    sum += (*a.at(0, k).data - typename R::Vector{}) * load<typename R::Vector>(some);
  }
  return sum;
}

// True if b's rows are contiguous and at least one vector long.
template <class R, class T = typename R::T>
bool has_whole_rows(const Strided<const T>& b, std::int64_t columns) {
  return b.col_stride == 1 && columns >= R::lanes;
}

// True if multiply_row() supports this b.
template <class R, class T = typename R::T>
bool suits_gemv(const Strided<const T>& b, std::int64_t columns) {
  return has_whole_rows<R>(b, columns) || b.row_stride == 1;
}

// c [1, columns] = from + a [1, terms] b [terms, columns].
template <class R, class T = typename R::T>
void gemv(std::int64_t terms, const Strided<const T>& a, const Strided<const T>& b,
          const Target<T>& to) {
  for (std::int64_t k = 0; k < terms; k += product_chain) {
    const std::int64_t some = std::min(product_chain, terms - k);
    const Target<T> sums = k > 0 ? to.next() : to;
    if (has_whole_rows<R>(b, to.columns)) {
      row_of_tiles<R>(some, a.at(0, k), b.at(k, 0), sums);
      continue;
    }
    for (std::int64_t j = 0; j < to.columns; j += R::lanes) {
      const std::int64_t columns = std::min<std::int64_t>(R::lanes, to.columns - j);
      const typename R::Vector chains[1] = {
          transposed_chains<R>(some, a.at(0, k), b.at(k, j), columns)};
      put<R>(chains, 0, sums.part(0, j, columns));
    }
  }
}

}  // namespace sotto::tiles
