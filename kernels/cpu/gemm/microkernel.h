// The inner loops of matrix products: tiles of the result stay in vector registers while their
// terms are added, and panels of b are packed in the order in which tiles read them (Goto and van
// de Geijn 2008, "Anatomy of high-performance matrix multiplication"). Each element is a chain of
// multiply-adds in the order of its terms, in every tile: its bits depend only on its row of a and
// its column of b, not on the number of rows and columns, and zeros at the end add nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/dtype.h"
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

// A factor of a product. Elements of 16 bits become floats while they are packed.
struct Factor {
  const void* data;
  Dtype dtype;
  std::int64_t row_stride, col_stride;

  Factor at(std::int64_t i, std::int64_t j) const {
    const auto bytes = static_cast<std::int64_t>(size_of(dtype));
    return {static_cast<const char*>(data) + (i * row_stride + j * col_stride) * bytes, dtype,
            row_stride, col_stride};
  }
  template <class S>
  Strided<const S> elements() const {
    return {static_cast<const S*>(data), row_stride, col_stride};
  }
};

// Calls f with the elements of x, a factor of a product whose sums are of type T.
template <class T, class F>
void with_elements(const Factor& x, const F& f) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (x.dtype == Dtype::bf16) return f(x.elements<bf16>());
    if (x.dtype == Dtype::f16) return f(x.elements<f16>());
  }
  f(x.elements<T>());
}

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

// Elements of type S as those of a vector. f16 in f32 has another exponent bias, and the exponent
// of infinity and NaN is all ones in both.
template <class R, class S>
typename R::Vector load_as(const S* from) {
  if constexpr (sizeof(S) != sizeof(bf16)) {
    return load<typename R::Vector>(from);
  } else {
    using Narrow [[gnu::vector_size(R::lanes * 2)]] = std::uint16_t;
    using Wide [[gnu::vector_size(R::lanes * 4)]] = std::uint32_t;
    const Wide bits = __builtin_convertvector(load<Narrow>(from), Wide);
    if constexpr (std::is_same_v<S, bf16>) return std::bit_cast<typename R::Vector>(bits << 16);
    const Wide sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    const auto finite = std::bit_cast<typename R::Vector>(rest << 13) * 0x1p112f;
    const Wide beyond = (rest + 0x0400u) >> 15;  // 1 for infinity and NaN
    const Wide ones = (0u - beyond) & 0x7f800000u;
    return std::bit_cast<typename R::Vector>(std::bit_cast<Wide>(finite) | ones | sign);
  }
}

// The element as one of type T.
template <class T, class S>
T element_as(const S& x) {
  return static_cast<T>(static_cast<acc_t<S>>(x));
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
template <class R, class S, class T = typename R::T>
void transpose_squares(std::int64_t rows, std::int64_t columns, const Strided<const S>& x, T* to,
                       std::int64_t step) {
  constexpr int n = R::lanes;
  for (std::int64_t j = 0; j + n <= columns; j += n) {
    for (std::int64_t i = 0; i + n <= rows; i += n) {
      typename R::Vector square[n];
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) square[k] = load_as<R>(x.at(i, j + k).data);
      transpose<R>(square);
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) store(square[k], to + (i + k) * step + j);
    }
  }
}

// Packs the panel of b [terms, columns]: rows of `width` elements, padded with zeros.
template <class R, class S, class T = typename R::T>
void pack(std::int64_t terms, std::int64_t columns, const Strided<const S>& b, T* panel,
          std::int64_t width) {
  constexpr int n = R::lanes;
  std::int64_t squared_terms = 0, squared_columns = 0;  // the part packed as whole squares
  if (b.row_stride == 1 && b.col_stride != 1) {
    squared_terms = terms / n * n;
    squared_columns = columns / n * n;
  }
  if (squared_terms > 0) transpose_squares<R>(terms, columns, b, panel, width);
  for (std::int64_t k = 0; k < terms; ++k) {
    const S* const from = b.data + k * b.row_stride;
    T* const to = panel + k * width;
    if (b.col_stride == 1 && columns == width && width % n == 0) {
      for (std::int64_t j = 0; j < width; j += n) store(load_as<R>(from + j), to + j);
      continue;
    }
    for (std::int64_t j = k < squared_terms ? squared_columns : 0; j < columns; ++j)
      to[j] = element_as<T>(from[j * b.col_stride]);
    std::fill(to + columns, to + width, T{0});
  }
}

// A copy of a [rows, terms] with contiguous rows, because rows of a large matrix may map to one set
// of the cache.
template <class R, class S, class T = typename R::T>
Strided<const T> packed_rows(std::int64_t rows, std::int64_t terms, const Strided<const S>& a,
                             T* copy) {
  constexpr std::int64_t n = R::lanes;
  const std::int64_t step = terms + n;
  const bool by_columns = a.row_stride == 1 && a.col_stride != 1;
  if (by_columns) transpose_squares<R>(rows, terms, a, copy, step);
  for (std::int64_t i = 0; i < rows; ++i) {
    const S* const from = a.data + i * a.row_stride;
    T* const to = copy + i * step;
    std::int64_t k = by_columns && i < rows / n * n ? terms / n * n : 0;
    if (a.col_stride == 1) {
      for (; k + R::lanes <= terms; k += R::lanes) store(load_as<R>(from + k), to + k);
    }
    for (; k < terms; ++k) to[k] = element_as<T>(from[k * a.col_stride]);
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

// The panels of b [terms, columns], of which the first is at `packed` if they are packed. For few
// rows panels of whole vectors are read in place.
template <class R, class T = typename R::T>
struct Panels {
  static constexpr std::int64_t width = 3 * R::lanes;

  std::int64_t terms, columns;
  Factor b;
  T* packed;
  bool in_place;

  Panel<T> at(std::int64_t j) const {
    const std::int64_t own = panel_width<R>(columns - j);
    if (lies_in_place(j)) return {b.at(0, j).template elements<T>().data, b.row_stride, own};
    return {packed + j * terms, own, own};
  }
  void pack_all() const {
    for (std::int64_t j = 0; j < columns; j += width) {
      if (lies_in_place(j)) continue;
      with_elements<T>(b.at(0, j), [&](const auto& x) {
        pack<R>(terms, std::min(width, columns - j), x, packed + j * terms, at(j).width);
      });
    }
  }

 private:
  bool lies_in_place(std::int64_t j) const {
    return in_place && columns - j >= panel_width<R>(columns - j);
  }
};

// Computes one block: c [rows, columns] = a [rows, terms] b [terms, columns], or c += a b.
template <class R, class T = typename R::T>
void multiply_block(std::int64_t rows, std::int64_t terms, const Factor& a, const Factor& b,
                    const Target<T>& to, Workspace<R>& workspace) {
  constexpr std::int64_t width = Panels<R>::width;
  const auto as_sums = [](const Factor& x) { return x.dtype == dtype_of<T>(); };
  const bool in_place = as_sums(b) && b.col_stride == 1 && rows <= 8 * R::rows;
  const Panels<R> panels{terms, to.columns, b, workspace.panels, in_place};
  panels.pack_all();
  // Columns of a that lie together are read in order, and not copied.
  constexpr std::int64_t near = 256 / sizeof(T);
  const bool pays = to.columns >= 3 * width && (a.row_stride != 1 || a.col_stride > near);
  for (std::int64_t i = 0; i < rows; i += block_rows) {
    const std::int64_t some = std::min(block_rows, rows - i);
    Strided<const T> x = a.at(i, 0).template elements<T>();
    if (!as_sums(a) || (pays && some > 1))
      with_elements<T>(a.at(i, 0), [&](const auto& from) {
        x = packed_rows<R>(some, terms, from, workspace.copy);
      });
    for (std::int64_t s = 0; s < some; s += R::rows) {
      for (std::int64_t j = 0; j < to.columns; j += width)
        multiply_panel<R>(std::min<std::int64_t>(R::rows, some - s), terms, x.at(s, 0),
                          panels.at(j),
                          {to.c.at(i + s, j), std::min(width, to.columns - j), to.add});
    }
  }
}

// c [rows, columns] = a [rows, terms] b [terms, columns], or c += a b.
template <class R, class T = typename R::T>
void multiply(std::int64_t rows, std::int64_t terms, const Factor& a, const Factor& b,
              const Target<T>& to, Workspace<R>& workspace) {
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
