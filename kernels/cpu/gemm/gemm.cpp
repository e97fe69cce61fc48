#include <algorithm>

#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/grain.h"
#include "kernels/host_device/fold_batch.h"

namespace sotto {
namespace {

// Threads get multiples of this many rows or columns.
constexpr std::int64_t unit = 48;

// Computes some rows of one item's c, or some columns if c is wider than tall.
void part(const Product& p, std::int64_t item, std::int64_t first, std::int64_t last) {
  const Matrix a = matrix(p.a, item), b = matrix(p.b, item), c = matrix(p.c, item);
  const std::int64_t count = last - first;
  if (c.rows >= c.cols) {
    product(a.row_block(first, count), b, p.add, c.row_block(first, count));
  } else {
    product(a, b.column_block(first, count), p.add, c.column_block(first, count));
  }
}

}  // namespace

Product fold_batch(const Product& p) {
  Product folded = p;
  fold_batch(folded.a, folded.b, folded.c);
  return folded;
}

// Splits the product over threads, which does not change the bits of the result.
void CpuBackend::gemm(View a, View b, double beta, View c) {
  if (c.numel() == 0) return;
  const Product p = fold_batch({a, b, c, beta != 0});
  const Matrix y = matrix(p.c, 0);
  const std::int64_t longer = std::max(y.rows, y.cols), shorter = std::min(y.rows, y.cols);
  const std::int64_t units = (longer + unit - 1) / unit;
  const std::int64_t unit_work = shorter * std::min(unit, longer) * matrix(p.a, 0).cols;
  parallel_for(
      p.batch() * units, product_grain(unit_work), [&](std::int64_t begin, std::int64_t end) {
        while (begin < end) {
          const std::int64_t first = begin % units, last = std::min(units, first + end - begin);
          part(p, begin / units, first * unit, std::min(longer, last * unit));
          begin += last - first;
        }
      });
}

}  // namespace sotto
