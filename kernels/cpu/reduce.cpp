// Reductions over any axes. Sums of f32 are computed in double, in a fixed order.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

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

// Term p of a result, counted over all reduced axes in row-major order, goes to partial result p
// mod
// 8. So the bits depend neither on the order of axes in memory nor on which of them merge, which
// may change with the number of samples.
constexpr std::int64_t lanes = 8;

// Columns whose partial results stay in the first-level cache.
constexpr std::int64_t max_columns = 256;

// One result.
template <class Fold, class T>
double fold_row(const T* x, const ReductionPlan& plan) {
  double partial[lanes];
  std::fill(partial, partial + lanes, Fold::start());
  const Axis inner = plan.reduced.empty() ? Axis{1, 0} : plan.reduced.back();
  const AxisList outer = plan.reduced.outer();
  const std::int64_t runs = outer.numel();
  for (std::int64_t run = 0; run < runs; ++run) {
    const T* p = x + outer.offset(run);
    const std::int64_t first = run * inner.size % lanes;
    with_step(inner.stride, [&](auto step) {
      const auto fold = [&](std::int64_t lane, std::int64_t i) {
        partial[lane] = Fold::fold(partial[lane], static_cast<double>(acc_t<T>(p[i * step])));
      };
      std::int64_t i = 0;
      for (; i < inner.size && (first + i) % lanes != 0; ++i) fold(first + i, i);
      for (; i + lanes <= inner.size; i += lanes) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) fold(lane, i + lane);
      }
      for (std::int64_t lane = 0; i < inner.size; ++i, ++lane) fold(lane, i);
    });
  }
  for (std::int64_t lane = 1; lane < lanes; ++lane)
    partial[0] = Fold::fold(partial[0], partial[lane]);
  return partial[0];
}

// Prefetches `width` elements of each of `count` rows.
template <class T>
void prefetch_rows(const T* x, std::int64_t stride, std::int64_t width, std::int64_t count) {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(T));
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t k = 0; k < width; k += line) __builtin_prefetch(x + r * stride + k);
  }
}

// Folds column k of some rows, of which row 0 is term `first`, into partial[lane][k]. If
// `together`, many short rows at a time save loads and stores, which is worth its code for sums of
// neighbours alone; long rows go one by one, because processors prefetch one long stream better
// than many short ones.
template <class Fold, class T, class Step>
void fold_rows(const T* x, const Axis& rows, Step step, std::int64_t width, std::int64_t first,
               bool together, double (*partial)[max_columns]) {
  const auto add = [&]<int Lanes, int Depth>(std::int64_t row, double(*to)[max_columns],
                                             std::integer_sequence<int, Lanes, Depth>) {
    const T* const p = x + row * rows.stride;
    for (std::int64_t k = 0; k < width; ++k) {
#pragma GCC unroll 8
      for (int r = 0; r < Lanes; ++r) {
        double value = to[r][k];
#pragma GCC unroll 4
        for (int d = 0; d < Depth; ++d)
          value = Fold::fold(
              value, static_cast<double>(acc_t<T>(p[(d * Lanes + r) * rows.stride + k * step])));
        to[r][k] = value;
      }
    }
  };
  constexpr int depth = 2;
  constexpr std::int64_t many = depth * lanes, long_row = 1024 / sizeof(T);
  std::int64_t row = 0;
  while (row < rows.size) {
    const std::int64_t lane = together ? (first + row) % lanes : 0;
    if constexpr (std::is_same_v<Fold, SumFold> && !std::is_same_v<Step, std::int64_t>) {
      if (together && width < long_row && lane == 0 && row + many <= rows.size) {
        prefetch_rows(x + (row + many) * rows.stride, rows.stride, width, many);
        add(row, partial, std::integer_sequence<int, lanes, depth>{});
        row += many;
        continue;
      }
    }
    add(row++, partial + lane, std::integer_sequence<int, 1, 1>{});
  }
}

// `width` neighbouring results at once, for an innermost axis of x that is kept. Of at most eight
// terms the partial results are single terms, so that one chain of them has the same bits.
template <class Fold, class T>
void fold_columns(const T* x, const ReductionPlan& plan, std::int64_t width, double* result) {
  double partial[lanes][max_columns];
  const bool several = plan.reduced.numel() > lanes;
  const std::int64_t used = several ? lanes : 1;
  for (std::int64_t lane = 0; lane < used; ++lane)
    std::fill(partial[lane], partial[lane] + width, Fold::start());
  const Axis rows = plan.reduced.back();
  const AxisList outer = plan.reduced.outer();
  const std::int64_t runs = outer.numel();
  with_step(plan.kept_x.back().stride, [&](auto step) {
    for (std::int64_t run = 0; run < runs; ++run)
      fold_rows<Fold>(x + outer.offset(run), rows, step, width, run * rows.size % lanes, several,
                      partial);
  });
  std::copy(partial[0], partial[0] + width, result);
  for (std::int64_t lane = 1; lane < used; ++lane) {
    for (std::int64_t k = 0; k < width; ++k) result[k] = Fold::fold(result[k], partial[lane][k]);
  }
}

template <class Fold, class T, class Y>
void reduce_rows(const T* x, Y* y, const ReductionPlan& plan) {
  const std::int64_t work = std::max<std::int64_t>(plan.reduced.numel(), 1);
  parallel_for(plan.kept_x.numel(), elementwise_grain / work + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 simd_dispatch_avx512([&] {
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
  constexpr std::int64_t longest = max_columns, shortest = 64;
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
          simd_dispatch_avx512([&] {
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
  const ReductionPlan plan(x, y, TermOrder::axes);
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
