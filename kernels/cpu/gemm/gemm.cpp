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

// Computes some rows of one item's c, or some columns if c is wider than tall: c = from + a b.
void part(const Product& p, std::int64_t item, const Matrix& from, std::int64_t first,
          std::int64_t last) {
  const Matrix a = matrix(p.a, item), b = matrix(p.b, item), c = matrix(p.c, item);
  const auto rows = [=](const Matrix& x) { return x.row_block(first, last - first); };
  const auto columns = [=](const Matrix& x) { return x.column_block(first, last - first); };
  if (c.rows >= c.cols) {
    product_from(rows(from), rows(a), b, rows(c));
  } else {
    product_from(columns(from), a, columns(b), columns(c));
  }
}

// Splits the products over threads, which does not change the bits of the results. from(item) is
// what an item's terms are added to.
template <class F>
void multiply(const Product& p, const F& from) {
  const Matrix y = matrix(p.c, 0);
  const std::int64_t longer = std::max(y.rows, y.cols), shorter = std::min(y.rows, y.cols);
  const std::int64_t units = (longer + unit - 1) / unit;
  const std::int64_t unit_work = shorter * std::min(unit, longer) * matrix(p.a, 0).cols;
  parallel_for(p.batch() * units, product_grain(unit_work),
               [&](std::int64_t begin, std::int64_t end) {
                 while (begin < end) {
                   const std::int64_t item = begin / units, first = begin % units,
                                      last = std::min(units, first + end - begin);
                   part(p, item, from(item), first * unit, std::min(longer, last * unit));
                   begin += last - first;
                 }
               });
}

}  // namespace

Product fold_batch(const Product& p) {
  Product folded = p;
  fold_batch(folded.a, folded.b, folded.c);
  return folded;
}

void CpuBackend::gemm(View a, View b, double beta, View c) {
  if (c.numel() == 0) return;
  const Product p = fold_batch({a, b, c, beta != 0});
  multiply(p, [&](std::int64_t item) { return p.add ? matrix(p.c, item) : Matrix{}; });
}

void CpuBackend::affine(View a, View b, View bias, View c) {
  if (c.numel() == 0) return;
  View rows = bias;
  rows.size[0] = c.size[0];
  rows.stride[0] = 0;
  multiply({a, b, c, false}, [&](std::int64_t) { return matrix(rows, 0); });
}

}  // namespace sotto
