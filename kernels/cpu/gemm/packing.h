// Factors of matrix products, in vectors, and panels of right factors: their columns, packed in the
// order in which tiles read them (Goto and van de Geijn 2008, "Anatomy of high-performance matrix
// multiplication").
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/dtype.h"
#include "kernels/cpu/gemm/row_of_panels.h"
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
// else 16. Processors with AVX-512 have a second-level cache of 1 MiB or more: the rows of a tile
// pass all panels of a block in turn. Elsewhere a panel passes all rows of a block.
template <class Element, int Bytes>
struct Registers {
  using T = Element;
  using Vector [[gnu::vector_size(Bytes)]] = T;
  static constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
  static constexpr int rows = Bytes == 64 ? 8 : 4;
  static constexpr bool has_half = Bytes == 64;
  static constexpr bool large_cache = Bytes == 64;
  using Half = Registers<Element, has_half ? Bytes / 2 : Bytes>;
};

// Columns of b that are packed at a time: they fit in the second-level cache.
template <class R>
inline constexpr std::int64_t block_columns = 1920 / sizeof(typename R::T);

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

// The width of the next panel, for `left` remaining columns: whole vectors, or half of one, which
// takes half the time on processors that split the widest vectors.
template <class R>
std::int64_t panel_width(std::int64_t left) {
  if (R::has_half && left <= R::lanes / 2) return R::lanes / 2;
  return std::min<std::int64_t>(3 * R::lanes, (left + R::lanes - 1) / R::lanes * R::lanes);
}

// The right factor of a product: a matrix; or the panels that pack_whole() packed; or rows that a
// function writes.
template <class T>
struct RightFactor {
  Factor matrix = {};
  const T* packed = nullptr;
  const RowWriter<T>* rows = nullptr;
};

// The panels of b [terms, columns], of which the first is at `packed` if they are packed. For few
// rows panels of whole vectors are read in place.
template <class R, class T = typename R::T>
struct Panels {
  static constexpr std::int64_t width = 3 * R::lanes;

  std::int64_t terms, columns;
  Factor b;
  const T* packed;
  bool in_place;

  Panel<T> at(std::int64_t j) const {
    const std::int64_t own = panel_width<R>(columns - j);
    if (lies_in_place(j)) return {b.at(0, j).template elements<T>().data, b.row_stride, own};
    return {packed + j * terms, own, own};
  }
  void pack_all(T* to) const {
    for (std::int64_t j = 0; j < columns; j += width) {
      if (lies_in_place(j)) continue;
      with_elements<T>(b.at(0, j), [&](const auto& x) {
        pack<R>(terms, std::min(width, columns - j), x, to + j * terms, at(j).width);
      });
    }
  }
  // Writes rows first .. first + terms - 1 of a factor, of its columns from `column` on.
  void write_rows(const RowWriter<T>& write, std::int64_t first, std::int64_t column, T* to) const {
    const std::int64_t last = (columns - 1) / width * width, own = panel_width<R>(columns - last);
    for (std::int64_t k = 0; k < terms; ++k) {
      const RowOfPanels<T> row{to, k, terms, width, own, column, columns};
      std::fill_n(row.at(columns - 1) + 1, last + own - columns, T{0});
      write(first + k, row);
    }
  }

 private:
  bool lies_in_place(std::int64_t j) const {
    return in_place && columns - j >= panel_width<R>(columns - j);
  }
};

// A block of a right factor: `terms` rows from k on, `columns` columns from j on.
struct Block {
  std::int64_t k, terms, j, columns;
};

// Calls f(block) for the blocks of a right factor [terms, columns].
template <class R, class F>
void for_each_block(std::int64_t terms, std::int64_t columns, const F& f) {
  for (std::int64_t k = 0; k < terms; k += product_chain) {
    for (std::int64_t j = 0; j < columns; j += block_columns<R>)
      f(Block{k, std::min(product_chain, terms - k), j, std::min(block_columns<R>, columns - j)});
  }
}

// The columns of a right factor, with the zeros behind the last.
template <class R>
std::int64_t padded_columns(std::int64_t columns) {
  const std::int64_t last = columns / Panels<R>::width * Panels<R>::width;
  return columns == last ? last : last + panel_width<R>(columns - last);
}

// Where pack_whole() puts a block of a right factor with so many columns.
template <class R>
std::int64_t place_of(const Block& block, std::int64_t columns) {
  return block.k * padded_columns<R>(columns) + block.j * block.terms;
}

// Packs some blocks of b [terms, columns], number `first` to `last` - 1, for any products with it;
// `to` has room for `terms` times padded_columns().
template <class R, class T = typename R::T>
void pack_whole(std::int64_t terms, std::int64_t columns, const Factor& b, std::int64_t first,
                std::int64_t last, T* to) {
  std::int64_t number = 0;
  for_each_block<R>(terms, columns, [&](const Block& block) {
    const std::int64_t own = number++;
    if (own < first || own >= last) return;
    const Panels<R> panels{block.terms, block.columns, b.at(block.k, block.j), to, false};
    panels.pack_all(to + place_of<R>(block, columns));
  });
}

}  // namespace sotto::tiles
