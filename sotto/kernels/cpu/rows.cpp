// Softmax and normalisation, a row at a time; sums over a row are taken in double.
#include <algorithm>
#include <cmath>

#include "sotto/core/wide.h"
#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/dot.h"
#include "sotto/kernels/cpu/strided_loop.h"
#include "sotto/kernels/math.h"

namespace sotto {

namespace {

// Calls f(row pointers..., k) for every row of row-major views of one element type.
template <class F, class... V>
void for_each_row(F&& f, View first, V... rest) {
  const std::int64_t k = first.size[first.rank - 1];
  const std::int64_t rows = k == 0 ? 0 : first.numel() / k;
  dispatch_float(first.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(rows, elementwise_grain / std::max<std::int64_t>(k, 1) + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   widely([&] {
                     for (std::int64_t r = begin; r < end; ++r)
                       f(r, k, first.template as<T>() + r * k, (rest.template as<T>() + r * k)...);
                   });
                 });
  });
}

}  // namespace

void CpuBackend::softmax(View x, bool logarithm, View y) {
  for_each_row(
      [logarithm]<class T>(std::int64_t, std::int64_t k, const T* a, T* b) {
        using A = acc_t<T>;
        A top = A(a[0]);
        for (std::int64_t i = 1; i < k; ++i) top = std::max(top, A(a[i]));
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const A e = math::exp(A(a[i]) - top);
          sum += static_cast<double>(e);
          if (!logarithm) b[i] = T(e);
        }
        // Taken off after the maximum: added to a large one first, it would be rounded away.
        const A log_sum = static_cast<A>(std::log(sum));
        const A factor = static_cast<A>(1 / sum);
        for (std::int64_t i = 0; i < k; ++i) {
          b[i] = logarithm ? T(A(a[i]) - top - log_sum) : T(A(b[i]) * factor);
        }
      },
      x, y);
}

void CpuBackend::softmax_grad(View y, View dy, bool logarithm, View dx) {
  for_each_row(
      [logarithm]<class T>(std::int64_t, std::int64_t k, const T* p, const T* d, T* out) {
        using A = acc_t<T>;
        const A s = static_cast<A>(sum_terms(k, [&](std::int64_t i) {
          return static_cast<double>(logarithm ? A(d[i]) : A(d[i]) * A(p[i]));
        }));
        for (std::int64_t i = 0; i < k; ++i) {
          out[i] = logarithm ? T(A(d[i]) - math::exp(A(p[i])) * s) : T(A(p[i]) * (A(d[i]) - s));
        }
      },
      y, dy, dx);
}

void CpuBackend::normalize(View x, double eps, bool centered, View y, View rstd) {
  for_each_row(
      [eps, centered, rstd]<class T>(std::int64_t row, std::int64_t k, const T* a, T* b) {
        using A = acc_t<T>;
        const auto value = [a](std::int64_t i) { return static_cast<double>(A(a[i])); };
        const double mean = centered ? sum_terms(k, value) / static_cast<double>(k) : 0;
        const double square = sum_terms(k, [&](std::int64_t i) {
          const double d = value(i) - mean;
          return d * d;
        });
        const double r = 1 / std::sqrt(square / static_cast<double>(k) + eps);
        rstd.as<A>()[row] = static_cast<A>(r);
        for (std::int64_t i = 0; i < k; ++i) {
          b[i] = T(static_cast<A>((static_cast<double>(A(a[i])) - mean) * r));
        }
      },
      x, y);
}

// dx = rstd (dy - mean(dy) - y mean(dy y)), without the second term when not centered.
void CpuBackend::normalize_grad(View y, View rstd, View dy, bool centered, View dx) {
  for_each_row(
      [centered, rstd]<class T>(std::int64_t row, std::int64_t k, const T* p, const T* d, T* out) {
        using A = acc_t<T>;
        const auto value = [d](std::int64_t i) { return static_cast<double>(A(d[i])); };
        const double count = static_cast<double>(k);
        const A mean = centered ? static_cast<A>(sum_terms(k, value) / count) : A(0);
        const A slope = static_cast<A>(dot(d, p, k) / count);
        const A r = rstd.as<A>()[row];
        for (std::int64_t i = 0; i < k; ++i) out[i] = T(r * (A(d[i]) - mean - A(p[i]) * slope));
      },
      y, dy, dx);
}

}  // namespace sotto
