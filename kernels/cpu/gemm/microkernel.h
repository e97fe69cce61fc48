// The inner loops of matrix products: tiles of the result stay in vector registers while their
// terms are added. Each element is a chain of multiply-adds in the order of its terms, in every
// tile: its bits depend only on its row of a and its column of b, not on the number of rows and
// columns, and zeros at the end add nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/gemm/packing.h"

namespace sotto::tiles {

// Rows of a in a block, which is multiplied with one panel after the other.
inline constexpr std::int64_t block_rows = 96;

// Memory of multiply() for panels and for copies of rows, aligned to vectors.
template <class R>
struct Workspace {
  alignas(64) typename R::T panels[product_chain * block_columns<R>];
  alignas(64) typename R::T copy[block_rows * (product_chain + R::lanes)];
  std::int64_t cache_ways;  // lines in a set of the first-level cache
};

// The destination of a tile: c, with `columns` columns, to which sums are added from `from`: c
// itself, others, or nothing.
template <class T>
struct Target {
  Strided<T> c;
  std::int64_t columns;
  Strided<const T> from = {};

  Target part(std::int64_t i, std::int64_t j, std::int64_t some) const {
    return {c.at(i, j), some, from.data ? from.at(i, j) : from};
  }
  // For the next terms: what is in c is added to.
  Target next() const { return {c, columns, {c.data, c.row_stride, c.col_stride}}; }
};

template <class T>
void put_each(const T* sums, const Target<T>& to) {
  for (std::int64_t j = 0; j < to.columns; ++j)
    *to.c.at(0, j).data = to.from.data ? *to.from.at(0, j).data + sums[j] : sums[j];
}

// Stores one row of a tile.
template <class R, int Vectors, class T = typename R::T>
void put(const typename R::Vector (&sums)[Vectors], std::int64_t row, const Target<T>& to) {
  using V = typename R::Vector;
  const Target<T> own = to.part(row, 0, to.columns);
  const T* const from = own.from.data;
  const bool adjacent = own.c.col_stride == 1 && (!from || own.from.col_stride == 1);
  if (adjacent && to.columns == Vectors * R::lanes) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t at = v * R::lanes;
      store(from ? load<V>(from + at) + sums[v] : sums[v], own.c.data + at);
    }
    return;
  }
  T some[Vectors * R::lanes];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) store(sums[v], some + v * R::lanes);
  put_each(some, own);
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
    to = to.part(Rows, 0, to.columns);
  }
  if constexpr (Rows > 1) column_of_tiles<R, Vectors, Rows / 2>(rows, terms, a, b, step, to);
}

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

// Multiplies `rows` rows of a with the panels of a block: with one after the other, or each with
// all panels in turn.
template <class R, class T = typename R::T>
void multiply_panels(std::int64_t rows, const Strided<const T>& a, const Panels<R>& panels,
                     const Target<T>& to) {
  constexpr std::int64_t width = Panels<R>::width, step = R::large_cache ? R::rows : block_rows;
  for (std::int64_t s = 0; s < rows; s += step) {
    for (std::int64_t j = 0; j < to.columns; j += width)
      multiply_panel<R>(std::min(step, rows - s), panels.terms, a.at(s, 0), panels.at(j),
                        to.part(s, j, std::min(width, to.columns - j)));
  }
}

// Computes one block: c [rows, columns] = from + a [rows, terms] b [terms, columns]. Rows of
// a are copied if they are not floats; and, for many columns, if their elements lie apart, or if a
// tile has as many rows as a set of the first-level cache has lines.
template <class R, class T = typename R::T>
void multiply_block(std::int64_t rows, const Factor& a, const Panels<R>& panels,
                    const Target<T>& to, Workspace<R>& workspace) {
  constexpr std::int64_t near = 256 / sizeof(T);
  const bool scattered = a.col_stride == 1 ? R::rows >= workspace.cache_ways
                                           : a.row_stride != 1 || a.col_stride > near,
             pays = to.columns >= 3 * Panels<R>::width && scattered,
             as_sums = a.dtype == dtype_of<T>();
  for (std::int64_t i = 0; i < rows; i += block_rows) {
    const std::int64_t some = std::min(block_rows, rows - i);
    Strided<const T> x = a.at(i, 0).template elements<T>();
    if (!as_sums || (pays && some > 1))
      with_elements<T>(a.at(i, 0), [&](const auto& from) {
        x = packed_rows<R>(some, panels.terms, from, workspace.copy);
      });
    multiply_panels<R>(some, x, panels, to.part(i, 0, to.columns));
  }
}

// c [rows, columns] = from + a [rows, terms] b [terms, columns].
template <class R, class T = typename R::T>
void multiply(std::int64_t rows, std::int64_t terms, const Factor& a, const RightFactor<T>& b,
              const Target<T>& to, Workspace<R>& workspace) {
  const bool in_place = b.matrix.data && b.matrix.dtype == dtype_of<T>() &&
                        b.matrix.col_stride == 1 && rows <= 8 * R::rows;
  for_each_block<R>(terms, to.columns, [&](const Block& block) {
    Panels<R> panels{block.terms, block.columns, {}, workspace.panels, in_place};
    if (b.packed) {
      panels.packed = b.packed + place_of<R>(block, to.columns);
    } else if (b.rows) {
      panels.write_rows(*b.rows, block.k, block.j, workspace.panels);
    } else {
      panels.b = b.matrix.at(block.k, block.j);
      panels.pack_all(workspace.panels);
    }
    multiply_block<R>(rows, a.at(0, block.k), panels,
                      (block.k > 0 ? to.next() : to).part(0, block.j, block.columns), workspace);
  });
}

}  // namespace sotto::tiles
