// Reductions over any axes. Sums of f32 are taken in double, in a fixed order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/strided_loop.h"

namespace sotto {

namespace {

struct Axis {
  std::int64_t size;
  std::int64_t stride;
};

// x's axes split into those kept and those reduced, each by falling stride and joined where
// contiguous; y's strides go with the kept axes.
struct Plan {
  std::vector<Axis> kept_x, kept_y, reduced;
};

Plan make_plan(View x, View y) {
  std::vector<int> order;
  for (int i = 0; i < x.rank; ++i) {
    if (x.size[i] != 1) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return x.stride[a] > x.stride[b]; });
  Plan plan;
  for (const int i : order) {
    if (y.size[i] == x.size[i]) {
      if (!plan.kept_x.empty() && plan.kept_x.back().stride == x.stride[i] * x.size[i] &&
          plan.kept_y.back().stride == y.stride[i] * y.size[i]) {
        plan.kept_x.back() = {plan.kept_x.back().size * x.size[i], x.stride[i]};
        plan.kept_y.back() = {plan.kept_x.back().size, y.stride[i]};
      } else {
        plan.kept_x.push_back({x.size[i], x.stride[i]});
        plan.kept_y.push_back({x.size[i], y.stride[i]});
      }
    } else if (!plan.reduced.empty() && plan.reduced.back().stride == x.stride[i] * x.size[i]) {
      plan.reduced.back() = {plan.reduced.back().size * x.size[i], x.stride[i]};
    } else {
      plan.reduced.push_back({x.size[i], x.stride[i]});
    }
  }
  return plan;
}

std::int64_t count(std::span<const Axis> axes) {
  std::int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

std::int64_t offset(std::span<const Axis> axes, std::int64_t index) {
  std::int64_t sum = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    sum += index % axis->size * axis->stride;
    index /= axis->size;
  }
  return sum;
}

struct SumFold {
  static double start() { return 0; }
  static double fold(double a, double b) { return a + b; }
};
struct MaxFold {
  static double start() { return -std::numeric_limits<double>::infinity(); }
  static double fold(double a, double b) { return b > a || b != b ? b : a; }
};
struct MinFold {
  static double start() { return std::numeric_limits<double>::infinity(); }
  static double fold(double a, double b) { return b < a || b != b ? b : a; }
};
struct ProductFold {
  static double start() { return 1; }
  static double fold(double a, double b) { return a * b; }
};

// One result: the innermost reduced axis in eight interleaved partial results.
template <class Fold, class T>
double fold_row(const T* x, const Plan& plan) {
  constexpr int lanes = 8;
  double partial[lanes];
  std::fill(partial, partial + lanes, Fold::start());
  const std::span<const Axis> reduced(plan.reduced);
  const Axis inner = reduced.empty() ? Axis{1, 0} : reduced.back();
  const auto outer = reduced.first(reduced.empty() ? 0 : reduced.size() - 1);
  const std::int64_t runs = count(outer);
  for (std::int64_t run = 0; run < runs; ++run) {
    const T* p = x + offset(outer, run);
    std::int64_t i = 0;
    for (; i + lanes <= inner.size; i += lanes) {
      for (int lane = 0; lane < lanes; ++lane) {
        partial[lane] =
            Fold::fold(partial[lane], static_cast<double>(acc_t<T>(p[(i + lane) * inner.stride])));
      }
    }
    for (; i < inner.size; ++i) {
      partial[0] = Fold::fold(partial[0], static_cast<double>(acc_t<T>(p[i * inner.stride])));
    }
  }
  for (int lane = 1; lane < lanes; ++lane) partial[0] = Fold::fold(partial[0], partial[lane]);
  return partial[0];
}

// `width` neighbouring results at once, where the innermost axis of x is kept.
template <class Fold, class T>
void fold_columns(const T* x, const Plan& plan, std::int64_t width, double* result) {
  std::fill(result, result + width, Fold::start());
  const std::int64_t rows = count(plan.reduced);
  const std::int64_t step = plan.kept_x.back().stride;
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* p = x + offset(plan.reduced, row);
    for (std::int64_t k = 0; k < width; ++k) {
      result[k] = Fold::fold(result[k], static_cast<double>(acc_t<T>(p[k * step])));
    }
  }
}

template <class Fold, class T>
void reduce_rows(const T* x, T* y, const Plan& plan) {
  const std::int64_t work = std::max<std::int64_t>(count(plan.reduced), 1);
  parallel_for(count(plan.kept_x), elementwise_grain / work + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const double value = fold_row<Fold>(x + offset(plan.kept_x, i), plan);
                   y[offset(plan.kept_y, i)] = static_cast<T>(static_cast<acc_t<T>>(value));
                 }
               });
}

template <class Fold, class T>
void reduce_columns(const T* x, T* y, const Plan& plan) {
  constexpr std::int64_t most = 64;
  const std::int64_t width = plan.kept_x.back().size;
  const std::int64_t blocks = (width + most - 1) / most;
  const Axis inner_y = plan.kept_y.back();
  const auto outer_x = std::span<const Axis>(plan.kept_x).first(plan.kept_x.size() - 1);
  const auto outer_y = std::span<const Axis>(plan.kept_y).first(plan.kept_y.size() - 1);
  const std::int64_t work = std::max<std::int64_t>(count(plan.reduced), 1) * std::min(width, most);
  parallel_for(
      count(outer_x) * blocks, elementwise_grain / work + 1,
      [&](std::int64_t begin, std::int64_t end) {
        double result[most];
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t first = i % blocks * most;
          const std::int64_t part = std::min(most, width - first);
          fold_columns<Fold>(x + offset(outer_x, i / blocks) + first * plan.kept_x.back().stride,
                             plan, part, result);
          T* to = y + offset(outer_y, i / blocks);
          for (std::int64_t k = 0; k < part; ++k) {
            to[(first + k) * inner_y.stride] = static_cast<T>(static_cast<acc_t<T>>(result[k]));
          }
        }
      });
}

template <class Fold>
void reduce_with(View x, View y) {
  if (y.numel() == 0) return;
  const Plan plan = make_plan(x, y);
  const bool columns = !plan.kept_x.empty() && !plan.reduced.empty() &&
                       plan.kept_x.back().stride < plan.reduced.back().stride;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    if (columns) {
      reduce_columns<Fold>(x.as<T>(), y.as<T>(), plan);
    } else {
      reduce_rows<Fold>(x.as<T>(), y.as<T>(), plan);
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
