// Inner products of per-sample gradients by their Gram form, without materializing them.
#include <algorithm>

#include <Eigen/Core>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/conv/gram_sum.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/gemm/pair_kernel.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/host_device/gemm_blocking.h"

namespace sotto {

namespace {

template <class T>
using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// One sample's slice [positions, width] of a factor, as a matrix of type A.
template <class A, class T>
Dense<A> slice(View x, std::int64_t sample) {
  const std::int64_t size = x.size[1] * x.size[2];
  const T* first = x.as<T>() + sample * size;
  Dense<A> m(x.size[1], x.size[2]);
  for (std::int64_t i = 0; i < size; ++i) m.data()[i] = static_cast<A>(acc_t<T>(first[i]));
  return m;
}

// The inner product of the two materialized weight gradients, in f64. It cancels linearly, whereas
// the Gram form cancels quadratically.
template <class T>
double dot_of_rows(View a1, View b1, View a2, View b2, std::int64_t n) {
  const Dense<double> g1 = slice<double, T>(b1, n).transpose() * slice<double, T>(a1, n);
  const Dense<double> g2 = slice<double, T>(b2, n).transpose() * slice<double, T>(a2, n);
  return g1.cwiseProduct(g2).sum();
}

// Computes Gram forms of samples, in one thread's memory: for a and for b, the inner products of
// all positions with all. In a norm, where both gradients are one, a pair of positions has one
// product in either order: columns of products are computed block by block, down to the diagonal.
template <class T>
class Grams {
 public:
  using A = acc_t<T>;
  Grams(const View& a1, const View& b1, const View& a2, const View& b2)
      : a1_(a1),
        b1_(b1),
        a2_(a2),
        b2_(b2),
        norm_(a1.data == a2.data && b1.data == b2.data),
        columns_(norm_ ? block_columns : a2.size[1]),
        of_a_(a1.size[1] * columns_),
        of_b_(a1.size[1] * columns_) {}

  double of(std::int64_t n) {
    const std::int64_t positions = a2_.size[1];
    GramSum sum;
    for (std::int64_t first = 0; first < positions; first += columns_) {
      const Range columns{first, std::min(first + columns_, positions)};
      const std::int64_t rows = norm_ ? columns.last : a1_.size[1],
                         twice = norm_ ? first * columns.count() : 0;
      multiply(matrix(a1_, n), matrix(a2_, n), rows, columns, of_a_.data());
      multiply(matrix(b1_, n), matrix(b2_, n), rows, columns, of_b_.data());
      simd_dispatch_avx512([&] {
        sum.add(of_a_.data(), of_b_.data(), twice, 2);
        sum.add(of_a_.data() + twice, of_b_.data() + twice, rows * columns.count() - twice);
      });
    }
    return sum.accurate() ? sum.value : dot_of_rows<T>(a1_, b1_, a2_, b2_, n);
  }

 private:
  static constexpr std::int64_t block_columns = 48;

  // The products of some positions with others, in chains of at most gram_chain terms: a Gram sum
  // squares the factors and so their rounding errors.
  static void multiply(const Matrix& x, const Matrix& y, std::int64_t rows, Range columns,
                       A* products) {
    const Matrix to{products, dtype_of<A>(), rows, columns.count(), columns.count(), 1},
        left = x.row_block(0, rows), right = y.row_block(columns.first, columns.count());
    const PairKernel* const pairs = x.dtype == Dtype::bf16 ? pair_kernel() : nullptr;
    const bool short_chains = pairs && pairs->chain <= gram_chain;
    const std::int64_t step = short_chains ? std::max<std::int64_t>(x.cols, 1) : gram_chain;
    for (std::int64_t at = 0; at == 0 || at < x.cols; at += step) {
      const std::int64_t count = std::min(step, x.cols - at);
      product(left.column_block(at, count), right.column_block(at, count).transposed(), at > 0, to);
    }
  }

  View a1_, b1_, a2_, b2_;
  bool norm_;
  std::int64_t columns_;
  Values<A> of_a_, of_b_;
};

}  // namespace

void CpuBackend::gram_dot(View a1, View b1, View a2, View b2, View y) {
  const bool single = a1.size[1] == 1 && a2.size[1] == 1;
  const std::int64_t i = a1.size[2], o = b1.size[2];
  const std::int64_t width = std::max<std::int64_t>(1, i + o);
  const std::int64_t grain =
      single ? dot_grain / width + 1 : product_grain(a1.size[1] * a2.size[1] * width);
  auto* const to = y.as<double>();
  dispatch_float(a1.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(a1.size[0], grain, [&](std::int64_t begin, std::int64_t end) {
      if (single) {
        simd_dispatch([&] {
          for (std::int64_t n = begin; n < end; ++n)
            to[n] = dot(a1.as<T>() + n * i, a2.as<T>() + n * i, i) *
                    dot(b1.as<T>() + n * o, b2.as<T>() + n * o, o);
        });
        return;
      }
      Grams<T> grams(a1, b1, a2, b2);
      for (std::int64_t n = begin; n < end; ++n) to[n] = grams.of(n);
    });
  });
}

}  // namespace sotto
