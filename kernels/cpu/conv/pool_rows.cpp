#include "kernels/cpu/conv/pool_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/host_device/max_index.h"
#include "kernels/host_device/windows.h"

namespace sotto {
namespace {

constexpr std::int64_t row_grain = 1 << 14;  // elements of work that are worth another thread

// Calls f(output column, input column, columns) for runs of output columns whose input columns, at
// column `k` of the kernel, are inside the input and advance by one.
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

// The taps of the window of output `out` that are inside the input, along one axis.
Range inside(const Geometry& g, int axis, std::int64_t out) {
  const Window& w = g.window;
  const std::int64_t start = out * w.stride[axis] - w.before[axis], step = w.dilation[axis];
  const std::int64_t first = start >= 0 ? 0 : (step - 1 - start) / step;
  const std::int64_t room = g.in[axis] - 1 - start;
  const std::int64_t last = std::min(w.kernel[axis], room < 0 ? 0 : room / step + 1);
  return {first, std::max(first, last)};
}

// Calls f(first tap of the kernel's row, input row) for the rows of the window at an output row.
template <class F>
void for_each_kernel_row(const Geometry& g, const Coord3& row, F&& f) {
  const Window& w = g.window;
  const Range ds = inside(g, 0, row.at[0]), hs = inside(g, 1, row.at[1]);
  for (std::int64_t kd = ds.first; kd < ds.last; ++kd) {
    const std::int64_t d = row.at[0] * w.stride[0] - w.before[0] + kd * w.dilation[0];
    for (std::int64_t kh = hs.first; kh < hs.last; ++kh) {
      const std::int64_t h = row.at[1] * w.stride[1] - w.before[1] + kh * w.dilation[1];
      f((kd * w.kernel[1] + kh) * w.kernel[2], d * g.in[1] + h);
    }
  }
}

// Calls f(input pixel) for the pixels in the window at one output position.
template <class F>
void for_each_pixel_seen(const Geometry& g, const Coord3& p, F&& f) {
  const Range columns = inside(g, 2, p.at[2]);
  const std::int64_t start = p.at[2] * g.window.stride[2] - g.window.before[2];
  for_each_kernel_row(g, p, [&](std::int64_t, std::int64_t row) {
    for (std::int64_t k = columns.first; k < columns.last; ++k)
      f(row * g.in[2] + start + k * g.window.dilation[2]);
  });
}

// The position of an output row's first column.
Coord3 row_place(const Geometry& g, std::int64_t row) {
  return {{row / g.out[1], row % g.out[1], 0}};
}

std::int64_t row_work(const Geometry& g) {
  return std::max<std::int64_t>(1, g.out[2] * g.channels * g.window.positions());
}

// Calls f(sample, first column's position, index of its first value) in parallel for all output
// rows.
template <class F>
void for_each_row(const Geometry& g, F&& f) {
  const std::int64_t rows = g.out[0] * g.out[1];
  parallel_for(g.samples * rows, row_grain / row_work(g) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 simd_dispatch([&] {
                   for (std::int64_t at = begin; at < end; ++at)
                     f(at / rows, row_place(g, at % rows), at * g.out[2] * g.channels);
                 });
               });
}

// best = max(best, x), with the tap of the maximum; NaN is the largest, and the first of equal
// values stays.
template <class T>
void take(const T* x, std::int32_t tap, std::int64_t count, acc_t<T>* best, std::int32_t* taps) {
  for (std::int64_t i = 0; i < count; ++i) {
    const acc_t<T> v = static_cast<acc_t<T>>(x[i]), old = best[i];
    const bool larger = takes_over(v, old);
    best[i] = larger ? v : old;
    taps[i] = larger ? tap : taps[i];
  }
}

// Results in the accumulation type, initially zero: stored in place if the results have that type,
// else converted at the end.
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

// Calls f(sums, first column's position, index of its first value) for the output rows of every
// sample; `sums` is the gradient of its image, initially zero. One thread handles an image, so that
// its sums have a fixed order.
template <class T, class F>
void for_each_image(const Geometry& g, T* dx, F&& f) {
  const std::int64_t rows = g.out[0] * g.out[1], size = g.pixels() * g.channels;
  parallel_for(g.samples, row_grain / (rows * row_work(g) + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t n = begin; n < end; ++n) {
                   const Row<T> sums(dx + n * size, size);
                   simd_dispatch([&] {
                     for (std::int64_t row = 0; row < rows; ++row)
                       f(sums.data(), row_place(g, row), (n * rows + row) * g.out[2] * g.channels);
                   });
                   sums.store();
                 }
               });
}

// Initial maxima of a row of windows: -infinity at the first tap inside the image; zero at tap 0
// for windows entirely in the padding.
template <class A>
void start_maxima(const Geometry& g, const Coord3& row, A* best, std::int32_t* taps) {
  const Range ds = inside(g, 0, row.at[0]), hs = inside(g, 1, row.at[1]);
  for (std::int64_t column = 0; column < g.out[2]; ++column) {
    const Range ws = inside(g, 2, column);
    const bool seen = ds.count() > 0 && hs.count() > 0 && ws.count() > 0;
    const std::int64_t tap =
        (ds.first * g.window.kernel[1] + hs.first) * g.window.kernel[2] + ws.first;
    std::fill_n(best + column * g.channels, g.channels,
                seen ? -std::numeric_limits<A>::infinity() : A{0});
    std::fill_n(taps + column * g.channels, g.channels, static_cast<std::int32_t>(seen ? tap : 0));
  }
}

// The distance of each tap from the first one, in values.
std::vector<std::int64_t> tap_offsets(const Geometry& g) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t tap = 0; tap < g.window.positions(); ++tap) {
    std::int64_t at[3] = {};
    for (int axis = 0; axis < 3; ++axis)
      at[axis] = coord3(tap, g.window.kernel).at[axis] * g.window.dilation[axis];
    offsets.push_back(((at[0] * g.in[1] + at[1]) * g.in[2] + at[2]) * g.channels);
  }
  return offsets;
}

}  // namespace

template <class T, class I>
void max_pool_rows(const Geometry& g, const T* x, T* y, I* argmax) {
  const std::int64_t c = g.channels, width = g.out[2] * c;
  for_each_row(g, [&](std::int64_t n, const Coord3& first, std::int64_t at) {
    thread_local std::vector<std::int32_t> taps;
    taps.resize(std::max(taps.size(), static_cast<std::size_t>(width)));
    std::int32_t* const tap_of =
        taps.data();  // looked up once: thread-local variables are slow to reach
    const Row<T> best(y + at, width);
    start_maxima(g, first, best.data(), tap_of);
    for_each_kernel_row(g, first, [&](std::int64_t tap, std::int64_t row) {
      const T* from = x + (n * g.pixels() + row * g.in[2]) * c;
      for (std::int64_t k = 0; k < g.window.kernel[2]; ++k) {
        for_each_run(g, k, [&](std::int64_t out, std::int64_t in, std::int64_t columns) {
          take(from + in * c, static_cast<std::int32_t>(tap + k), columns * c,
               best.data() + out * c, tap_of + out * c);
        });
      }
    });
    best.store();
    std::transform(tap_of, tap_of + width, argmax + at,
                   [](std::int32_t tap) { return static_cast<I>(tap); });
  });
}

// Each gradient is added to the pixel of its maximum: one addition per output, however many windows
// contain a pixel.
template <class T, class I>
void max_pool_rows_grad(const Geometry& g, const T* dy, const I* argmax, T* dx) {
  const Window& w = g.window;
  const std::int64_t c = g.channels;
  const std::vector<std::int64_t> offsets = tap_offsets(g);
  std::vector<std::int64_t> columns;  // whose windows are not entirely in the padding
  for (std::int64_t column = 0; column < g.out[2]; ++column) {
    if (inside(g, 2, column).count() > 0) columns.push_back(column);
  }
  for_each_image(g, dx, [&](acc_t<T>* sums, const Coord3& first, std::int64_t at) {
    if (inside(g, 0, first.at[0]).count() == 0 || inside(g, 1, first.at[1]).count() == 0) return;
    const std::int64_t d = first.at[0] * w.stride[0] - w.before[0];
    const std::int64_t h = first.at[1] * w.stride[1] - w.before[1];
    for (const std::int64_t column : columns) {
      const std::int64_t start = column * w.stride[2] - w.before[2];
      const std::int64_t pixel = ((d * g.in[1] + h) * g.in[2] + start) * c;
      for (std::int64_t i = 0; i < c; ++i) {
        const std::int64_t from = at + column * c + i;
        sums[pixel + i + offsets[static_cast<std::size_t>(argmax[from])]] +=
            static_cast<acc_t<T>>(dy[from]);
      }
    }
  });
}

template <class T>
void avg_pool_rows(const Geometry& g, const T* x, bool count_padding, T* y) {
  const std::int64_t c = g.channels;
  for_each_row(g, [&](std::int64_t n, const Coord3& first, std::int64_t at) {
    const Row<T> row(y + at, g.out[2] * c);
    for (Coord3 p = first; p.at[2] < g.out[2]; ++p.at[2]) {
      acc_t<T>* const sum = row.data() + p.at[2] * c;
      for_each_pixel_seen(g, p, [&](std::int64_t pixel) {
        const T* from = x + (n * g.pixels() + pixel) * c;
        for (std::int64_t i = 0; i < c; ++i) sum[i] += static_cast<acc_t<T>>(from[i]);
      });
      const auto factor = static_cast<acc_t<T>>(weight(g, p, count_padding));
      for (std::int64_t i = 0; i < c; ++i) sum[i] *= factor;
    }
    row.store();
  });
}

template <class T>
void avg_pool_rows_grad(const Geometry& g, const T* dy, bool count_padding, T* dx) {
  const std::int64_t c = g.channels;
  for_each_image(g, dx, [&](acc_t<T>* sums, const Coord3& first, std::int64_t at) {
    for (Coord3 p = first; p.at[2] < g.out[2]; ++p.at[2]) {
      const auto factor = static_cast<acc_t<T>>(weight(g, p, count_padding));
      const T* from = dy + at + p.at[2] * c;
      for_each_pixel_seen(g, p, [&](std::int64_t pixel) {
        acc_t<T>* const to = sums + pixel * c;
        for (std::int64_t i = 0; i < c; ++i) to[i] += static_cast<acc_t<T>>(from[i]) * factor;
      });
    }
  });
}

template void max_pool_rows(const Geometry&, const float*, float*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const float*, const std::uint8_t*, float*);
template void max_pool_rows(const Geometry&, const float*, float*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const float*, const std::int32_t*, float*);
template void avg_pool_rows(const Geometry&, const float*, bool, float*);
template void avg_pool_rows_grad(const Geometry&, const float*, bool, float*);
template void max_pool_rows(const Geometry&, const double*, double*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const double*, const std::uint8_t*, double*);
template void max_pool_rows(const Geometry&, const double*, double*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const double*, const std::int32_t*, double*);
template void avg_pool_rows(const Geometry&, const double*, bool, double*);
template void avg_pool_rows_grad(const Geometry&, const double*, bool, double*);
template void max_pool_rows(const Geometry&, const f16*, f16*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const f16*, const std::uint8_t*, f16*);
template void max_pool_rows(const Geometry&, const f16*, f16*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const f16*, const std::int32_t*, f16*);
template void avg_pool_rows(const Geometry&, const f16*, bool, f16*);
template void avg_pool_rows_grad(const Geometry&, const f16*, bool, f16*);
template void max_pool_rows(const Geometry&, const bf16*, bf16*, std::uint8_t*);
template void max_pool_rows_grad(const Geometry&, const bf16*, const std::uint8_t*, bf16*);
template void max_pool_rows(const Geometry&, const bf16*, bf16*, std::int32_t*);
template void max_pool_rows_grad(const Geometry&, const bf16*, const std::int32_t*, bf16*);
template void avg_pool_rows(const Geometry&, const bf16*, bool, bf16*);
template void avg_pool_rows_grad(const Geometry&, const bf16*, bool, bf16*);

}  // namespace sotto
