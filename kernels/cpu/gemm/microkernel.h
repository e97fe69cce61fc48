// The inner loops of matrix products: tiles of the result stay in vector registers while their
// terms are added, and panels of b are packed in the order in which tiles read them (Goto and van
// de Geijn 2008, "Anatomy of high-performance matrix multiplication"). Each element is a chain of
// multiply-adds in the order of its terms, in every tile: its bits depend only on its row of a and
// its column of b, not on the number of rows and columns, and zeros at the end add nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/host_device/gemm_blocking.h"

namespace sotto::tiles {

// A matrix whose element (i, j) is at data + i row_stride + j col_stride, counted in elements.
template <class T>
struct Strided {
  T* data;
  std::int64_t row_stride, col_stride;

  Strided at(std::int64_t i, std::int64_t j) const {
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
};

// Vectors of `Bytes` bytes, and the tile sizes that fill their registers: 32 registers for AVX-512,
// else 16.
template <class Element, int Bytes>
struct Registers {
  using T = Element;
  using Vector [[gnu::vector_size(Bytes)]] = T;
  static constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
  static constexpr int rows = Bytes == 64 ? 8 : 4;
  static constexpr bool has_half = Bytes == 64;
  using Half = Registers<Element, has_half ? Bytes / 2 : Bytes>;
};

// Rows of a in a block, which is multiplied with one panel after the other.
inline constexpr std::int64_t block_rows = 48;

// Columns of b that are packed at a time: they fit in the second-level cache.
template <class R>
inline constexpr std::int64_t block_columns = 1920 / sizeof(typename R::T);

// Memory of multiply() for panels and for copies of rows, aligned to vectors.
template <class R>
struct Workspace {
  alignas(64) typename R::T panels[product_chain * block_columns<R>];
  alignas(64) typename R::T copy[block_rows * (product_chain + R::lanes)];
};

template <class V, class T>
V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}
template <class V, class T>
void store(const V& v, T* to) {
  std::memcpy(to, &v, sizeof(V));
}

// The destination of a tile: c, with `columns` columns.
template <class T>
struct Target {
  Strided<T> c;
  std::int64_t columns;
  bool add;
};

template <class T>
void put_each(const T* sums, const Target<T>& to) {
  for (std::int64_t j = 0; j < to.columns; ++j) {
    T& at = to.c.data[j * to.c.col_stride];
    at = to.add ? at + sums[j] : sums[j];
  }
}

// Stores one row of a tile.
template <class R, int Vectors, class T = typename R::T>
void put(const typename R::Vector (&sums)[Vectors], std::int64_t row, const Target<T>& to) {
  using V = typename R::Vector;
  const Strided<T> c = to.c.at(row, 0);
  if (c.col_stride == 1 && to.columns == Vectors * R::lanes) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      T* const at = c.data + v * R::lanes;
      store(to.add ? load<V>(at) + sums[v] : sums[v], at);
    }
    return;
  }
  T some[Vectors * R::lanes];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) store(sums[v], some + v * R::lanes);
  put_each(some, Target<T>{c, to.columns, to.add});
}

// Rows x Vectors of c from a [Rows, terms] and b [terms, Vectors], whose rows have stride `step`.
template <class R, int Rows, int Vectors, class T = typename R::T>
void tile(std::int64_t terms, Strided<const T> a, const T* b, std::int64_t step,
          const Target<T>& to) {
  using V = typename R::Vector;
  V sums[Rows][Vectors] = {};
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v)
      __builtin_prefetch(to.c.data + i * to.c.row_stride + v * R::lanes, 1);
  }
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < terms; ++k) {
    V y[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) y[v] = load<V>(b + v * R::lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const V x = a.data[i * a.row_stride] - V{};  // in all lanes
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) sums[i][v] += x * y[v];
    }
    a.data += a.col_stride;
    b += step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) put<R>(sums[i], i, to);
}

// Tiles of `Rows` rows while enough rows are left, then of fewer.
template <class R, int Vectors, int Rows = R::rows, class T = typename R::T>
void column_of_tiles(std::int64_t rows, std::int64_t terms, Strided<const T> a, const T* b,
                     std::int64_t step, Target<T> to) {
  for (; rows >= Rows; rows -= Rows) {
    tile<R, Rows, Vectors>(terms, a, b, step, to);
    a = a.at(Rows, 0);
    to.c = to.c.at(Rows, 0);
  }
  if constexpr (Rows > 1) column_of_tiles<R, Vectors, Rows / 2>(rows, terms, a, b, step, to);
}

// Interleaves two vectors: `low` is a[0], b[0], a[1], ... from their lower halves, `high` from
// their upper halves.
template <class V, std::size_t... I>
void interleave(const V& a, const V& b, V& low, V& high, std::index_sequence<I...>) {
  constexpr std::size_t n = sizeof...(I);
  low = __builtin_shufflevector(a, b, (I / 2 + I % 2 * n)...);
  high = __builtin_shufflevector(a, b, (n / 2 + I / 2 + I % 2 * n)...);
}

// Transposes a square of `lanes` vectors.
template <class R>
void transpose(typename R::Vector (&x)[R::lanes]) {
  constexpr int n = R::lanes;
#pragma GCC unroll 4
  for (int stage = 1; stage < n; stage *= 2) {
    typename R::Vector y[n];
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i)
      interleave(x[i], x[i + n / 2], y[2 * i], y[2 * i + 1], std::make_index_sequence<n>());
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) x[i] = y[i];
  }
}

// Transposes the squares of x [rows, columns], whose columns are contiguous, into rows `step`
// apart.
template <class R, class T = typename R::T>
void transpose_squares(std::int64_t rows, std::int64_t columns, const Strided<const T>& x, T* to,
                       std::int64_t step) {
  constexpr int n = R::lanes;
  for (std::int64_t j = 0; j + n <= columns; j += n) {
    for (std::int64_t i = 0; i + n <= rows; i += n) {
      typename R::Vector square[n];
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) square[k] = load<typename R::Vector>(x.at(i, j + k).data);
      transpose<R>(square);
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) store(square[k], to + (i + k) * step + j);
    }
  }
}

// Packs the panel of b [terms, columns]: rows of `width` elements, padded with zeros.
template <class R, class T = typename R::T>
void pack(std::int64_t terms, std::int64_t columns, const Strided<const T>& b, T* panel,
          std::int64_t width) {
  constexpr int n = R::lanes;
  std::int64_t squared_terms = 0, squared_columns = 0;  // the part packed as whole squares
  if (b.row_stride == 1 && b.col_stride != 1) {
    squared_terms = terms / n * n;
    squared_columns = columns / n * n;
  }
  if (squared_terms > 0) transpose_squares<R>(terms, columns, b, panel, width);
  for (std::int64_t k = 0; k < terms; ++k) {
    const T* const from = b.data + k * b.row_stride;
    T* const to = panel + k * width;
    if (b.col_stride == 1 && columns == width && width % n == 0) {
      for (std::int64_t j = 0; j < width; j += n) store(load<typename R::Vector>(from + j), to + j);
      continue;
    }
    for (std::int64_t j = k < squared_terms ? squared_columns : 0; j < columns; ++j)
      to[j] = from[j * b.col_stride];
    std::fill(to + columns, to + width, T{0});
  }
}

// A copy of a [rows, terms] with contiguous rows, because rows of a large matrix may map to one set
// of the cache.
template <class R, class T = typename R::T>
Strided<const T> packed_rows(std::int64_t rows, std::int64_t terms, const Strided<const T>& a,
                             T* copy) {
  constexpr std::int64_t n = R::lanes;
  const std::int64_t step = terms + n;
  const bool by_columns = a.row_stride == 1 && a.col_stride != 1;
  if (by_columns) transpose_squares<R>(rows, terms, a, copy, step);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* const from = a.data + i * a.row_stride;
    T* const to = copy + i * step;
    std::int64_t k = by_columns && i < rows / n * n ? terms / n * n : 0;
    if (a.col_stride == 1) {
      for (; k + R::lanes <= terms; k += R::lanes)
        store(load<typename R::Vector>(from + k), to + k);
    }
    for (; k < terms; ++k) to[k] = from[k * a.col_stride];
  }
  return {copy, step, 1};
}

// Columns of b: rows of a packed panel or, if b is used in place, of b.
template <class T>
struct Panel {
  const T* data;
  std::int64_t step, width;
};

// Multiplies a few rows of c with one panel.
template <class R, class T = typename R::T>
void multiply_panel(std::int64_t rows, std::int64_t terms, const Strided<const T>& a,
                    const Panel<T>& b, const Target<T>& to) {
  if (b.width == 3 * R::lanes)
    column_of_tiles<R, 3>(rows, terms, a, b.data, b.step, to);
  else if (b.width == 2 * R::lanes)
    column_of_tiles<R, 2>(rows, terms, a, b.data, b.step, to);
  else if (b.width == R::lanes)
    column_of_tiles<R, 1>(rows, terms, a, b.data, b.step, to);
  else
    column_of_tiles<typename R::Half, 1, R::rows>(rows, terms, a, b.data, b.step, to);
}

// The width of the next panel, for `left` remaining columns: whole vectors, or half of one, which
// takes half the time on processors that split the widest vectors.
template <class R>
std::int64_t panel_width(std::int64_t left) {
  if (R::has_half && left <= R::lanes / 2) return R::lanes / 2;
  return std::min<std::int64_t>(3 * R::lanes, (left + R::lanes - 1) / R::lanes * R::lanes);
}

// Computes one block: c [rows, columns] = a [rows, terms] b [terms, columns], or c += a b.
template <class R, class T = typename R::T>
void multiply_block(std::int64_t rows, std::int64_t terms, const Strided<const T>& a,
                    const Strided<const T>& b, const Target<T>& to, Workspace<R>& workspace) {
  constexpr std::int64_t width = 3 * R::lanes;
  T* const panels = workspace.panels;
  // For few rows b is read in place.
  const bool few = b.col_stride == 1 && rows <= 8 * R::rows;
  const auto panel_at = [&](std::int64_t j) {
    const std::int64_t left = to.columns - j;
    const std::int64_t own = panel_width<R>(left);
    if (few && left >= own) return Panel<T>{b.at(0, j).data, b.row_stride, own};
    return Panel<T>{panels + j * terms, own, own};
  };
  for (std::int64_t j = 0; j < to.columns; j += width) {
    if (panel_at(j).data == panels + j * terms)
      pack<R>(terms, std::min(width, to.columns - j), b.at(0, j), panels + j * terms,
              panel_at(j).width);
  }
  // Columns of a that lie together are read in order, and not copied.
  constexpr std::int64_t near = 256 / sizeof(T);
  const bool pays = to.columns >= 3 * width && (a.row_stride != 1 || a.col_stride > near);
  for (std::int64_t i = 0; i < rows; i += block_rows) {
    const std::int64_t some = std::min(block_rows, rows - i);
    const bool copied = pays && some > 1;
    const Strided<const T> x =
        copied ? packed_rows<R>(some, terms, a.at(i, 0), workspace.copy) : a.at(i, 0);
    for (std::int64_t s = 0; s < some; s += R::rows) {
      for (std::int64_t j = 0; j < to.columns; j += width)
        multiply_panel<R>(std::min<std::int64_t>(R::rows, some - s), terms, x.at(s, 0), panel_at(j),
                          {to.c.at(i + s, j), std::min(width, to.columns - j), to.add});
    }
  }
}

// c [rows, columns] = a [rows, terms] b [terms, columns], or c += a b.
template <class R, class T = typename R::T>
void multiply(std::int64_t rows, std::int64_t terms, const Strided<const T>& a,
              const Strided<const T>& b, const Target<T>& to, Workspace<R>& workspace) {
  for (std::int64_t k = 0; k < terms; k += product_chain) {
    for (std::int64_t j = 0; j < to.columns; j += block_columns<R>) {
      const Target<T> part{to.c.at(0, j), std::min(block_columns<R>, to.columns - j),
                           to.add || k > 0};
      multiply_block<R>(rows, std::min(product_chain, terms - k), a.at(0, k), b.at(k, j), part,
                        workspace);
    }
  }
}

}  // namespace sotto::tiles
