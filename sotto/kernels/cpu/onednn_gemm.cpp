#include "sotto/kernels/cpu/onednn_gemm.h"

#include <algorithm>

#include <oneapi/dnnl/dnnl.h>

#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/onednn_narrow.h"
#include "sotto/kernels/fold_batch.h"

namespace sotto {
namespace {

// A matrix in the words of sgemm: row-major ('N') or transposed ('T'), rows or columns a step
// apart.
struct Layout {
  float* data;
  char letter;
  std::int64_t step;
  bool lies;  // whether it is f32 and lies so
};

Layout as_onednn(const Matrix& x) {
  const bool by_rows = x.col_stride == 1 || x.cols == 1,
             by_columns = x.row_stride == 1 || x.rows == 1;
  const std::int64_t length = by_rows ? x.cols : x.rows, lines = by_rows ? x.rows : x.cols;
  const std::int64_t step = by_rows ? x.row_stride : x.col_stride;
  const bool lies =
      x.dtype == Dtype::f32 && (by_rows || by_columns) && (lines == 1 || step >= length);
  return {static_cast<float*>(x.data), by_rows ? 'N' : 'T', std::max(step, length), lies};
}

// Whether the strides suit oneDNN.
bool lie(const Matrix& a, const Matrix& b, const Matrix& c) {
  return as_onednn(a).lies && as_onednn(b).lies && as_onednn(c).letter == 'N' && as_onednn(c).lies;
}

void sgemm(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  const Layout x = as_onednn(a), y = as_onednn(b), z = as_onednn(c);
  const auto status = dnnl_sgemm(x.letter, y.letter, c.rows, c.cols, a.cols, 1.0F, x.data, x.step,
                                 y.data, y.step, add ? 1.0F : 0.0F, z.data, z.step);
  if (status != dnnl_success) product(a, b, add, c);
}

// Whether the product of [m, k] and [k, n] takes longer than the call.
bool pays(std::int64_t m, std::int64_t k, std::int64_t n) {
  constexpr std::int64_t least = 1 << 12;  // multiply-adds
  return m * k * n >= least;
}

// A product, or a part of one that pays.
void onednn_part(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  (lie(a, b, c) ? sgemm : product)(a, b, add, c);
}

// For the products of two views, which may be cut: what a part is multiplied with must not depend
// on where.
ProductFunction product_for(const View& a, const View& c) {
  const Matrix x = matrix(a, 0), y = matrix(c, 0);
  return pays(y.rows, x.cols, y.cols) ? onednn_part : product;
}

// A product of whole tiles of rows, where nothing may depend on how many they are: oneDNN adds up
// blocks of so many terms one after the other for some numbers of rows, and all at once for others.
void onednn_tiles(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  constexpr std::int64_t terms = 384, least_weights = 1 << 7;
  if (!lie(a, b, c) || b.rows * b.cols < least_weights) return product(a, b, add, c);
  for (std::int64_t k = 0; k < b.rows; k += terms) {
    const std::int64_t count = std::min(terms, b.rows - k);
    sgemm(a.column_block(k, count), b.row_block(k, count), add || k > 0, c);
  }
}

}  // namespace

void onednn_product(const Matrix& a, const Matrix& b, bool add, const Matrix& c) {
  (lie(a, b, c) && pays(a.rows, a.cols, b.cols) ? sgemm : product)(a, b, add, c);
}

void OnednnBackend::gemm(View a, View b, double beta, View c) {
  if (narrow_operands(a, b, c)) {
    const bool bfloat = a.dtype == Dtype::bf16 && b.dtype == Dtype::bf16;
    return narrow_gemm_by(bfloat ? prepare_bfloat_tile : prepare_tile, a, b, beta != 0, c);
  }
  gemm_by(product_for(a, c), onednn_tiles, a, b, beta != 0, c);
}

void OnednnBackend::outer_sum(View b, View a, double beta, View y) {
  if (narrow_operands(b, a, y)) return gemm(transposed(b), a, beta, y);
  gemm_by(product_for(transposed(b), y), nullptr, transposed(b), a, beta != 0, y);
}

void OnednnBackend::gram_dot(View a1, View b1, View a2, View b2, View y) {
  gram_dot_by(onednn_product, a1, b1, a2, b2, y);
}

}  // namespace sotto
