// Pooling by strips of channels at one pixel; the loops over a strip vectorize when the images are
// channels-last. Gradients gather, so that every pixel is written once.
#include <algorithm>
#include <limits>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/images.h"
#include "kernels/cpu/conv/pool_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_device/max_index.h"
#include "kernels/host_device/windows.h"

namespace sotto {
namespace {

// Channels in a strip, whose sums are on the stack.
constexpr std::int64_t strip = 64;

// The channels [first, first + count) at one place of one sample.
template <class T>
struct Strip {
  T* data;
  std::int64_t stride;
  std::int64_t count;
};

template <class T>
Strip<T> strip_at(const View& v, std::int64_t n, const Coord3& p, Range channels) {
  T* data = v.as<T>() + n * v.stride[0] + channels.first * v.stride[1];
  for (int axis = 0; axis < 3; ++axis) data += p.at[axis] * v.stride[axis + 2];
  return {data, v.stride[1], channels.count()};
}

// Calls f(i, element) along a strip; stride 1 has its own loop, which vectorizes.
template <class T, class F>
void along(const Strip<T>& s, F&& f) {
  if (s.stride == 1) {
    for (std::int64_t i = 0; i < s.count; ++i) f(i, s.data[i]);
  } else {
    for (std::int64_t i = 0; i < s.count; ++i) f(i, s.data[i * s.stride]);
  }
}

// Calls f(sample, place, channels) in parallel for all strips of [samples, channels, size].
template <class F>
void for_each_strip(const Geometry& g, const std::int64_t* size, F&& f) {
  const std::int64_t places = size[0] * size[1] * size[2];
  const std::int64_t work = std::max<std::int64_t>(1, g.channels * g.window.positions());
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / work);
  parallel_for(g.samples * places, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const Coord3 p = coord3(at % places, size);
      for (std::int64_t c = 0; c < g.channels; c += strip) {
        f(at / places, p, Range{c, std::min(g.channels, c + strip)});
      }
    }
  });
}

// The running maximum of one strip.
template <class T>
struct Maximum {
  acc_t<T> best[strip];
  std::int32_t tap[strip];
  bool empty = true;

  void take(std::int64_t k, const Strip<T>& x) {
    const auto index = static_cast<std::int32_t>(k);
    along(x, [&](std::int64_t i, T element) {
      const auto v = static_cast<acc_t<T>>(element);
      const bool larger = empty || takes_over(v, best[i]);
      best[i] = larger ? v : best[i];
      tap[i] = larger ? index : tap[i];
    });
    empty = false;
  }
};

}  // namespace

void CpuBackend::max_pool(View x, const Window& window, View y, View argmax) {
  const Geometry g(x, y, window);
  const bool rows = is_channels_last(x) && is_channels_last(y) && is_channels_last(argmax);
  const auto run = [&]<class T, class I>(std::type_identity<T>, std::type_identity<I>) {
    if (rows) return max_pool_rows(g, x.as<T>(), y.as<T>(), argmax.as<I>());
    for_each_strip(g, g.out, [&](std::int64_t n, const Coord3& p, Range channels) {
      Maximum<T> maximum;
      for_each_pixel(g, p, [&](std::int64_t k, const Coord3& pixel) {
        maximum.take(k, strip_at<T>(x, n, pixel, channels));
      });
      // A window entirely in the padding gives zero; its tap 0 is padding too, so it gets no
      // gradient.
      const bool none = maximum.empty;
      along(strip_at<T>(y, n, p, channels), [&](std::int64_t i, T& to) {
        to = static_cast<T>(none ? acc_t<T>{0} : maximum.best[i]);
      });
      along(strip_at<I>(argmax, n, p, channels),
            [&](std::int64_t i, I& to) { to = static_cast<I>(none ? 0 : maximum.tap[i]); });
    });
  };
  dispatch_float(
      x.dtype, [&](auto type) { with_index(argmax.dtype, [&](auto index) { run(type, index); }); });
}

void CpuBackend::max_pool_grad(View dy, View argmax, const Window& window, View dx) {
  const Geometry g(dx, dy, window);
  const bool rows = is_channels_last(dx) && is_channels_last(dy) && is_channels_last(argmax);
  const auto run = [&]<class T, class I>(std::type_identity<T>, std::type_identity<I>) {
    if (rows) return max_pool_rows_grad(g, dy.as<T>(), argmax.as<I>(), dx.as<T>());
    for_each_strip(g, g.in, [&](std::int64_t n, const Coord3& pixel, Range channels) {
      acc_t<T> sum[strip] = {};
      for_each_position(g, pixel, [&](std::int64_t k, const Coord3& p) {
        const Strip<I> index = strip_at<I>(argmax, n, p, channels);
        along(strip_at<T>(dy, n, p, channels), [&](std::int64_t i, T slope) {
          const bool mine = index.data[i * index.stride] == static_cast<I>(k);
          sum[i] += mine ? static_cast<acc_t<T>>(slope) : acc_t<T>{0};
        });
      });
      along(strip_at<T>(dx, n, pixel, channels),
            [&](std::int64_t i, T& to) { to = static_cast<T>(sum[i]); });
    });
  };
  dispatch_float(dy.dtype, [&](auto type) {
    with_index(argmax.dtype, [&](auto index) { run(type, index); });
  });
}

void CpuBackend::avg_pool(View x, const Window& window, bool count_padding, View y) {
  const Geometry g(x, y, window);
  const bool rows = is_channels_last(x) && is_channels_last(y);
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    if (rows) return avg_pool_rows(g, x.as<T>(), count_padding, y.as<T>());
    for_each_strip(g, g.out, [&](std::int64_t n, const Coord3& p, Range channels) {
      acc_t<T> sum[strip] = {};
      for_each_pixel(g, p, [&](std::int64_t, const Coord3& pixel) {
        along(strip_at<T>(x, n, pixel, channels),
              [&](std::int64_t i, T v) { sum[i] += static_cast<acc_t<T>>(v); });
      });
      const auto factor = static_cast<acc_t<T>>(weight(g, p, count_padding));
      along(strip_at<T>(y, n, p, channels),
            [&](std::int64_t i, T& to) { to = static_cast<T>(sum[i] * factor); });
    });
  });
}

void CpuBackend::avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) {
  const Geometry g(dx, dy, window);
  const bool rows = is_channels_last(dx) && is_channels_last(dy);
  dispatch_float(dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (rows) return avg_pool_rows_grad(g, dy.as<T>(), count_padding, dx.as<T>());
    for_each_strip(g, g.in, [&](std::int64_t n, const Coord3& pixel, Range channels) {
      acc_t<T> sum[strip] = {};
      for_each_position(g, pixel, [&](std::int64_t, const Coord3& p) {
        const auto factor = static_cast<acc_t<T>>(weight(g, p, count_padding));
        along(strip_at<T>(dy, n, p, channels),
              [&](std::int64_t i, T slope) { sum[i] += static_cast<acc_t<T>>(slope) * factor; });
      });
      along(strip_at<T>(dx, n, pixel, channels),
            [&](std::int64_t i, T& to) { to = static_cast<T>(sum[i]); });
    });
  });
}

}  // namespace sotto
