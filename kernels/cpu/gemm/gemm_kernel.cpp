#include "kernels/cpu/gemm/gemm_kernel.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/gemm/gemv.h"
#include "kernels/cpu/gemm/microkernel.h"
#include "kernels/cpu/gemm/pair_product.h"
#include "kernels/cpu/grain.h"

namespace sotto {
namespace {

// y = x. The inner loop follows x's smaller stride.
template <class From, class To>
void convert(const Matrix& x, const Matrix& y) {
  if (x.row_stride < x.col_stride && x.row_stride != 0)
    return convert<From, To>(x.transposed(), y.transposed());
  const bool by_rows = x.col_stride == 1 && y.col_stride == 1;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const From* from = static_cast<const From*>(x.data) + i * x.row_stride;
    To* to = static_cast<To*>(y.data) + i * y.row_stride;
    if (by_rows) {
      simd_dispatch_avx512([&] {
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

// Calls f(std::type_identity<R>{}, dispatch) with the registers R of this processor; dispatch(g)
// calls g(), compiled for it.
template <class T, class F>
void with_registers(const F& f) {
#if defined(__x86_64__)
  if (has_avx512())
    return f(std::type_identity<tiles::Registers<T, 64>>{}, [](const auto& g) { in_avx512(g); });
  if (has_avx2())
    return f(std::type_identity<tiles::Registers<T, 32>>{}, [](const auto& g) { in_avx2(g); });
#endif
  f(std::type_identity<tiles::Registers<T, 16>>{}, [](const auto& g) { g(); });
}

// Lines in a set of the first-level cache; 8 where the system does not tell.
std::int64_t cache_ways() {
#if defined(_SC_LEVEL1_DCACHE_ASSOC)
  static const long ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  if (ways > 0) return ways;
#endif
  return 8;
}

// c = from + a b, where `from` may be without data.
template <class T>
void multiply_rows(const Matrix& a, const tiles::RightFactor<T>& b, const Matrix& from,
                   const Matrix& c) {
  const tiles::Factor x = factor(a);
  const tiles::Target<T> to{strided<T>(c), c.cols, strided<const T>(from)};
  const bool as_sums = a.dtype == c.dtype && b.matrix.dtype == c.dtype;
  with_registers<T>([&]<class R>(std::type_identity<R>, const auto& dispatch) {
    if (c.rows == 1 && as_sums && b.matrix.data) {
      const tiles::Strided<const T> y = b.matrix.template elements<T>();
      if (tiles::suits_gemv<R>(y, c.cols))
        return dispatch([&] { tiles::gemv<R>(a.cols, x.elements<T>(), y, to); });
    }
    tiles::Workspace<R> memory;  // on the stack: used by this thread only, freed when it returns
    memory.cache_ways = cache_ways();
    dispatch([&] { tiles::multiply<R>(c.rows, a.cols, x, b, to, memory); });
  });
}

// If c is narrower than a vector, the vectors run along its longer axis.
template <class T>
constexpr std::int64_t narrow = 32 / sizeof(T);

// Multiplies into a c of type T; 16-bit factors are packed as they lie for a T of f32.
template <class T>
void multiply(const Matrix& a, const Matrix& b, const Matrix& from, const Matrix& c) {
  if (c.cols < narrow<T> && c.rows > c.cols)
    return multiply<T>(b.transposed(), a.transposed(), from.transposed(), c.transposed());
  multiply_rows<T>(a, {.matrix = factor(b)}, from, c);
}

// Multiplies into a c of another type, block by block of f32 or f64.
template <class T>
void multiply_narrow(const Matrix& a, const Matrix& b, const Matrix& from, const Matrix& c) {
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
      if (from.data) copy_matrix(from.row_block(i, rows).column_block(j, columns), sums);
      multiply<T>(a.row_block(i, rows), y, from.data ? sums : Matrix{}, sums);
      copy_matrix(sums, to);
    }
  }
}

template <class T>
void product_in(const Matrix& a, const Matrix& b, const Matrix& from, const Matrix& c) {
  if (c.dtype == dtype_of<T>()) return multiply<T>(a, b, from, c);
  multiply_narrow<T>(a, b, from, c);
}

// Products of factors of which one is f64: the other is copied.
void product_in_f64(const Matrix& a, const Matrix& b, const Matrix& from, const Matrix& c) {
  std::optional<Scratch> a_scratch, b_scratch;
  product_in<double>(in_f64(a, a_scratch), in_f64(b, b_scratch), from, c);
}

// The result of a product with no terms.
void begin(const Matrix& from, const Matrix& c) {
  if (from.data == c.data) return;
  if (from.data) return copy_matrix(from, c);
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
  void* const from = data ? static_cast<char*>(data) + offset : nullptr;
  return {from, dtype, count, cols, row_stride, col_stride};
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

void product_from(const Matrix& from, const Matrix& a, const Matrix& b, const Matrix& c) {
  if (c.rows == 0 || c.cols == 0) return;
  if (a.cols == 0) return begin(from, c);
  if (c.col_stride > c.row_stride && c.rows > 1)
    return product_from(from.transposed(), b.transposed(), a.transposed(), c.transposed());
  const auto is_double = [](const Matrix& x) { return x.dtype == Dtype::f64; };
  if (is_double(a) || is_double(b) || is_double(c)) return product_in_f64(a, b, from, c);
  const PairKernel* const pairs = pair_kernel();
  if (!pairs || a.dtype != Dtype::bf16 || b.dtype != Dtype::bf16)
    return product_in<float>(a, b, from, c);
  if (from.data) begin(from, c);
  pair_product(*pairs, a, b, from.data != nullptr, c);
}

void product(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  product_from(add ? c : Matrix{}, a, b, c);
}

namespace {

// The type of a product's sums is f64 or, for 16 bits too, f32.
template <class F>
void with_sums(Dtype dtype, const F& f) {
  dtype == Dtype::f64 ? f(double{}) : f(float{});
}

template <class R>
std::int64_t blocks_of(const Matrix& b) {
  std::int64_t blocks = 0;
  tiles::for_each_block<R>(b.rows, b.cols, [&](const tiles::Block&) { ++blocks; });
  return blocks;
}

}  // namespace

PackedMatrix::PackedMatrix(const Matrix& b, Dtype sums) : b_(b) {
  with_sums(sums, [&]<class T>(T) {
    if (b.rows == 0 || b.cols == 0) return;
    with_registers<T>([&]<class R>(std::type_identity<R>, const auto& dispatch) {
      const std::int64_t size = b.rows * tiles::padded_columns<R>(b.cols);
      panels_ = std::make_unique<Storage>(static_cast<std::size_t>(size) * sizeof(T), cpu);
      auto* const to = static_cast<T*>(panels_->data());
      const std::int64_t blocks = blocks_of<R>(b);
      parallel_for(
          blocks, elementwise_grain / (size / (blocks + 1) + 1) + 1,
          [&](std::int64_t begin, std::int64_t end) {
            dispatch([&] { tiles::pack_whole<R>(b.rows, b.cols, factor(b), begin, end, to); });
          });
    });
  });
}

void product(const Matrix& a, const PackedMatrix& b, bool add, const Matrix& c) {
  with_sums(c.dtype, [&]<class T>(T) {
    if (!b.panels_ || c.cols < narrow<T>) return product(a, b.b_, add, c);
    if (c.rows == 0) return;
    const auto* const panels = static_cast<const T*>(b.panels_->data());
    multiply_rows<T>(a, {.packed = panels}, add ? c : Matrix{}, c);
  });
}

void product_tiles(std::span<const Matrix> a, std::span<const PackedMatrix> b,
                   const std::function<void(const ProductTile&)>& use) {
  if (a.empty() || !b[0].panels_) return;
  const std::int64_t rows = a[0].rows, terms = a[0].cols, columns = b[0].b_.cols;
  with_registers<float>([&]<class R>(std::type_identity<R>, const auto& dispatch) {
    constexpr std::int64_t width = tiles::Panels<R>::width;
    alignas(64) float values[R::rows * width];
    std::vector<tiles::Strided<const float>> x(a.size());
    const std::int64_t size = rows * (terms + R::lanes);
    const Storage copies(a.size() * static_cast<std::size_t>(size) * sizeof(float), cpu);
    const auto multiply_tile = [&](std::size_t n, std::int64_t i, std::int64_t j) {
      const tiles::Panels<R> panels{
          terms, columns, {}, static_cast<const float*>(b[n].panels_->data()), false};
      const ProductTile tile{.product = static_cast<std::int64_t>(n),
                             .row = i,
                             .column = j,
                             .rows = std::min<std::int64_t>(R::rows, rows - i),
                             .columns = std::min(width, columns - j),
                             .values = values,
                             .step = width};
      tiles::multiply_panel<R>(tile.rows, terms, x[n].at(i, 0), panels.at(j),
                               {{values, width, 1}, tile.columns});
      use(tile);
    };
    dispatch([&] {
      auto* copy = static_cast<float*>(copies.data());
      for (std::size_t n = 0; n < a.size(); ++n, copy += size)
        tiles::with_elements<float>(factor(a[n]), [&](const auto& from) {
          x[n] = tiles::packed_rows<R>(rows, terms, from, copy);
        });
      for (std::int64_t j = 0; j < columns; j += width) {
        for (std::int64_t i = 0; i < rows; i += R::rows) {
          for (std::size_t n = 0; n < a.size(); ++n) multiply_tile(n, i, j);
        }
      }
    });
  });
}

template <class T>
void product_of_rows(const Matrix& a, const tiles::RowWriter<T>& write, bool add, const Matrix& c) {
  if (c.rows == 0 || c.cols == 0) return;
  if (a.cols == 0) return product(a, {nullptr, a.dtype, 0, c.cols, c.cols, 1}, add, c);
  multiply_rows<T>(a, {.rows = &write}, add ? c : Matrix{}, c);
}
template void product_of_rows(const Matrix&, const tiles::RowWriter<float>&, bool, const Matrix&);
template void product_of_rows(const Matrix&, const tiles::RowWriter<double>&, bool, const Matrix&);

}  // namespace sotto
