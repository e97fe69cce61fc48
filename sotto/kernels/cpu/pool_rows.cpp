#include "sotto/kernels/cpu/pool_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "sotto/core/parallel.h"
#include "sotto/kernels/chosen.h"

namespace sotto {
namespace {

constexpr std::int64_t row_grain = 1 << 14;  // elements of work for which a second thread pays

// Calls f(output column, input column, columns) for runs in which both move by one column, where a
// kernel's column `k` sees the input.
template <class F>
void for_each_run(const Geometry& g, std::int64_t k, F&& f) {
  const Window& w = g.window;
  const std::int64_t shift = k * w.dilation[2] - w.before[2];  // input column of output column 0
  const std::int64_t step = w.stride[2];
  const std::int64_t first = shift >= 0 ? 0 : (-shift + step - 1) / step;
  const std::int64_t room = g.in[2] - 1 - shift;
  const std::int64_t last = std::min(g.out[2], room < 0 ? 0 : room / step + 1);
  if (first >= last) return;
  if (step == 1) return f(first, first + shift, last - first);
  for (std::int64_t column = first; column < last; ++column)
    f(column, column * step + shift, std::int64_t{1});
}

// The other end of an axis: input index from output index and tap, or the other way; -1 for none.
std::int64_t input_at(const Geometry& g, int axis, std::int64_t out, std::int64_t k) {
  const Window& w = g.window;
  const std::int64_t in = out * w.stride[axis] - w.before[axis] + k * w.dilation[axis];
  return in >= 0 && in < g.in[axis] ? in : -1;
}

std::int64_t output_at(const Geometry& g, int axis, std::int64_t in, std::int64_t k) {
  const Window& w = g.window;
  const std::int64_t from = in + w.before[axis] - k * w.dilation[axis];
  if (from < 0 || from % w.stride[axis] != 0) return -1;
  return from / w.stride[axis] < g.out[axis] ? from / w.stride[axis] : -1;
}

// Calls f(first tap of the kernel's row, other row) for the kernel's rows that join this row to
// another, where `other` is input_at or output_at and `size` the sizes of the other images.
template <class Other, class F>
void for_each_kernel_row(const Geometry& g, const std::int64_t* size, std::int64_t depth,
                         std::int64_t height, Other other, F&& f) {
  const Window& w = g.window;
  for (std::int64_t kd = 0; kd < w.kernel[0]; ++kd) {
    const std::int64_t d = other(g, 0, depth, kd);
    if (d < 0) continue;
    for (std::int64_t kh = 0; kh < w.kernel[1]; ++kh) {
      const std::int64_t h = other(g, 1, height, kh);
      if (h >= 0) f((kd * w.kernel[1] + kh) * w.kernel[2], d * size[1] + h);
    }
  }
}

// Calls f(sample, depth, height) in parallel for all rows of pixels.
template <class F>
void for_each_row(const Geometry& g, const std::int64_t* size, F&& f) {
  const std::int64_t rows = size[0] * size[1];
  const std::int64_t work = std::max<std::int64_t>(1, size[2] * g.channels * g.window.positions());
  parallel_for(g.samples * rows, row_grain / work + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) f(at / rows, at % rows / size[1], at % size[1]);
  });
}

// best = max(best, x), with the tap that it came from; NaN is largest, the first of equals stays.
template <class T>
void take(const T* x, std::int32_t tap, std::int64_t count, acc_t<T>* best, std::int32_t* taps) {
  for (std::int64_t i = 0; i < count; ++i) {
    const acc_t<T> v = static_cast<acc_t<T>>(x[i]);
    const bool larger = (taps[i] < 0) | takes_over(v, best[i]);
    best[i] = larger ? v : best[i];
    taps[i] = larger ? tap : taps[i];
  }
}

template <class T, class I>
void add_chosen(const T* dy, const I* chosen, std::int32_t tap, std::int64_t count, acc_t<T>* dx) {
  for (std::int64_t i = 0; i < count; ++i)
    dx[i] +=
        static_cast<std::int32_t>(chosen[i]) == tap ? static_cast<acc_t<T>>(dy[i]) : acc_t<T>(0);
}

// A row of results in the type of the arithmetic, zeros at first: their own place where they have
// that type.
template <class T>
class Row {
 public:
  Row(T* results, std::int64_t count) : results_(results), count_(count) {
    if constexpr (std::is_same_v<T, acc_t<T>>) {
      data_ = results;
    } else {
      thread_local std::vector<acc_t<T>> scratch;
      scratch.resize(std::max(scratch.size(), static_cast<std::size_t>(count)));
      data_ = scratch.data();
    }
    std::fill(data_, data_ + count, acc_t<T>(0));
  }
  acc_t<T>* data() const { return data_; }
  void store() const {
    if constexpr (!std::is_same_v<T, acc_t<T>>) {
      for (std::int64_t i = 0; i < count_; ++i) results_[i] = static_cast<T>(data_[i]);
    }
  }

 private:
  T* results_;
  std::int64_t count_;
  acc_t<T>* data_;
};

}  // namespace

template <class T, class I>
void max_pool_rows(const Geometry& g, const T* x, T* y, I* chosen) {
  const std::int64_t c = g.channels;
  const std::int64_t width = g.out[2] * c;
  for_each_row(g, g.out, [&](std::int64_t n, std::int64_t depth, std::int64_t height) {
    thread_local std::vector<std::int32_t> taps;
    taps.assign(static_cast<std::size_t>(width), -1);
    std::int32_t* const tap_of =
        taps.data();  // looked up once: thread-local variables are slow to reach
    const std::int64_t at = (n * g.positions() + (depth * g.out[1] + height) * g.out[2]) * c;
    // Zero is what a window wholly in the padding gives.
    const Row<T> best(y + at, width);
    for_each_kernel_row(g, g.in, depth, height, input_at, [&](std::int64_t tap, std::int64_t row) {
      const T* from = x + (n * g.pixels() + row * g.in[2]) * c;
      for (std::int64_t k = 0; k < g.window.kernel[2]; ++k) {
        for_each_run(g, k, [&](std::int64_t out, std::int64_t in, std::int64_t columns) {
          take(from + in * c, static_cast<std::int32_t>(tap + k), columns * c,
               best.data() + out * c, tap_of + out * c);
        });
      }
    });
    best.store();
    for (std::int64_t i = 0; i < width; ++i) {
      chosen[at + i] = static_cast<I>(std::max(tap_of[i], 0));
    }
  });
}

template <class T, class I>
void max_pool_rows_grad(const Geometry& g, const T* dy, const I* chosen, T* dx) {
  const std::int64_t c = g.channels;
  for_each_row(g, g.in, [&](std::int64_t n, std::int64_t depth, std::int64_t height) {
    const Row<T> to(dx + (n * g.pixels() + (depth * g.in[1] + height) * g.in[2]) * c, g.in[2] * c);
    for_each_kernel_row(
        g, g.out, depth, height, output_at, [&](std::int64_t tap, std::int64_t row) {
          const std::int64_t at = (n * g.positions() + row * g.out[2]) * c;
          for (std::int64_t k = 0; k < g.window.kernel[2]; ++k) {
            for_each_run(g, k, [&](std::int64_t out, std::int64_t in, std::int64_t columns) {
              add_chosen(dy + at + out * c, chosen + at + out * c,
                         static_cast<std::int32_t>(tap + k), columns * c, to.data() + in * c);
            });
          }
        });
    to.store();
  });
}

template void max_pool_rows(const Geometry&, const float*, float*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const float*, const std::uint8_t*, float*);
template void max_pool_rows(const Geometry&, const float*, float*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const float*, const std::int32_t*, float*);
template void max_pool_rows(const Geometry&, const double*, double*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const double*, const std::uint8_t*, double*);
template void max_pool_rows(const Geometry&, const double*, double*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const double*, const std::int32_t*, double*);
template void max_pool_rows(const Geometry&, const f16*, f16*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const f16*, const std::uint8_t*, f16*);
template void max_pool_rows(const Geometry&, const f16*, f16*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const f16*, const std::int32_t*, f16*);
template void max_pool_rows(const Geometry&, const bf16*, bf16*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const bf16*, const std::uint8_t*, bf16*);
template void max_pool_rows(const Geometry&, const bf16*, bf16*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const bf16*, const std::int32_t*, bf16*);

}  // namespace sotto
