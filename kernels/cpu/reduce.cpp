// Reductions over any axes. Sums of f32 are computed in double, in a fixed order.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/host_device/reduction_plan.h"

namespace sotto {

namespace {

// Calls f(step), with a step of 1 as a constant, so that the loop vectorizes.
template <class F>
void with_step(std::int64_t step, F&& f) {
  if (step == 1) {
    f(std::integral_constant<std::int64_t, 1>{});
  } else {
    f(step);
  }
}

// One result: folds the innermost reduced axis into eight interleaved partial results.
template <class Fold, class T>
double fold_row(const T* x, const ReductionPlan& plan) {
  constexpr int lanes = 8;
  double partial[lanes];
  std::fill(partial, partial + lanes, Fold::start());
  const Axis inner = plan.reduced.empty() ? Axis{1, 0} : plan.reduced.back();
  const AxisList outer = plan.reduced.outer();
  const std::int64_t runs = outer.numel();
  for (std::int64_t run = 0; run < runs; ++run) {
    const T* p = x + outer.offset(run);
    with_step(inner.stride, [&](auto step) {
      const auto fold = [&](double& into, std::int64_t i) {
        into = Fold::fold(into, static_cast<double>(acc_t<T>(p[i * step])));
      };
      std::int64_t i = 0;
      for (; i + lanes <= inner.size; i += lanes) {
        for (int lane = 0; lane < lanes; ++lane) fold(partial[lane], i + lane);
      }
      for (; i < inner.size; ++i) fold(partial[0], i);
    });
  }
  for (int lane = 1; lane < lanes; ++lane) partial[0] = Fold::fold(partial[0], partial[lane]);
  return partial[0];
}

// Prefetches `width` elements in each of four rows.
template <class T>
void prefetch_rows(const T* x, std::int64_t stride, std::int64_t width) {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(T));
  for (int r = 0; r < 4; ++r) {
    for (std::int64_t k = 0; k < width; k += line) __builtin_prefetch(x + r * stride + k);
  }
}

// Folds column k of the rows into result[k], four short rows at a time to save loads and stores,
// and long rows one by one, because processors prefetch one long stream better than four short
// ones.
template <class Fold, class T, class Step>
void fold_rows(const T* x, const Axis& rows, Step step, std::int64_t width, double* result) {
  const auto some = [&]<int Count>(const T* p, std::integral_constant<int, Count>) {
    for (std::int64_t k = 0; k < width; ++k) {
      double value = result[k];
#pragma GCC unroll 4
      for (int r = 0; r < Count; ++r)
        value = Fold::fold(value, static_cast<double>(acc_t<T>(p[r * rows.stride + k * step])));
      result[k] = value;
    }
  };
  constexpr std::int64_t long_row = 1024 / sizeof(T);
  std::int64_t row = 0;
  for (; width < long_row && row + 4 <= rows.size; row += 4) {
    if (step == 1) prefetch_rows(x + (row + 4) * rows.stride, rows.stride, width);
    some(x + row * rows.stride, std::integral_constant<int, 4>{});
  }
  for (; row < rows.size; ++row) some(x + row * rows.stride, std::integral_constant<int, 1>{});
}

// `width` neighbouring results at once, for an innermost axis of x that is kept.
template <class Fold, class T>
void fold_columns(const T* x, const ReductionPlan& plan, std::int64_t width, double* result) {
  std::fill(result, result + width, Fold::start());
  const Axis rows = plan.reduced.back();
  const AxisList outer = plan.reduced.outer();
  const std::int64_t runs = outer.numel();
  with_step(plan.kept_x.back().stride, [&](auto step) {
    for (std::int64_t run = 0; run < runs; ++run)
      fold_rows<Fold>(x + outer.offset(run), rows, step, width, result);
  });
}

template <class Fold, class T, class Y>
void reduce_rows(const T* x, Y* y, const ReductionPlan& plan) {
  const std::int64_t work = std::max<std::int64_t>(plan.reduced.numel(), 1);
  parallel_for(plan.kept_x.numel(), elementwise_grain / work + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 simd_dispatch([&] {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const double value = fold_row<Fold>(x + plan.kept_x.offset(i), plan);
                     y[plan.kept_y.offset(i)] = static_cast<Y>(static_cast<acc_t<Y>>(value));
                   }
                 });
               });
}

template <class Fold, class T, class Y>
void reduce_columns(const T* x, Y* y, const ReductionPlan& plan) {
  // The number of neighbouring results per block: large, so that memory is read in long runs, but
  // small enough that every thread gets a block.
  constexpr std::int64_t longest = 512, shortest = 64;
  const std::int64_t width = plan.kept_x.back().size;
  const std::int64_t max = plan.kept_x.outer().numel() >= thread_count() ? longest : shortest;
  const std::int64_t blocks = (width + max - 1) / max;
  const Axis inner_y = plan.kept_y.back();
  const AxisList outer_x = plan.kept_x.outer(), outer_y = plan.kept_y.outer();
  const std::int64_t work = std::max<std::int64_t>(plan.reduced.numel(), 1) * std::min(width, max);
  parallel_for(
      outer_x.numel() * blocks, elementwise_grain / work + 1,
      [&](std::int64_t begin, std::int64_t end) {
        double result[longest];
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t first = i % blocks * max;
          const std::int64_t part = std::min(max, width - first);
          simd_dispatch([&] {
            fold_columns<Fold>(x + outer_x.offset(i / blocks) + first * plan.kept_x.back().stride,
                               plan, part, result);
          });
          Y* to = y + outer_y.offset(i / blocks);
          for (std::int64_t k = 0; k < part; ++k) {
            to[(first + k) * inner_y.stride] = static_cast<Y>(static_cast<acc_t<Y>>(result[k]));
          }
        }
      });
}

template <class Fold>
void reduce_with(View x, View y) {
  if (y.numel() == 0) return;
  const ReductionPlan plan(x, y);
  const auto run = [&]<class T, class Y>(std::type_identity<T>, std::type_identity<Y>) {
    if (plan.columns()) {
      reduce_columns<Fold>(x.as<T>(), y.as<Y>(), plan);
    } else {
      reduce_rows<Fold>(x.as<T>(), y.as<Y>(), plan);
    }
  };
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T> type) {
    if (x.dtype == y.dtype) {
      run(type, type);
    } else {
      run(type, std::type_identity<acc_t<T>>{});
    }
  });
}

}  // namespace

void CpuBackend::reduce(Reduction op, View x, View y) {
  switch (op) {
    case Reduction::sum: return reduce_with<SumFold>(x, y);
    case Reduction::max: return reduce_with<MaxFold>(x, y);
    case Reduction::min: return reduce_with<MinFold>(x, y);
    case Reduction::product: return reduce_with<ProductFold>(x, y);
  }
}

void CpuBackend::argmax(View x, View y) {
  const std::int64_t width = x.size[x.rank - 1];
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(y.numel(), elementwise_grain / width + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const T* row = x.as<T>() + i * width;
                     std::int64_t best = 0;
                     for (std::int64_t k = 1; k < width; ++k) {
                       if (acc_t<T>(row[k]) > acc_t<T>(row[best])) best = k;
                     }
                     y.as<std::int64_t>()[i] = best;
                   }
                 });
  });
}

}  // namespace sotto
