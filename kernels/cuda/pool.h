// Pooling, one thread per element. Gradients gather, so that every pixel is written once.
#pragma once

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/host_device/max_index.h"
#include "kernels/host_device/reciprocal.h"
#include "kernels/host_device/windows.h"

namespace sotto {

// The sample, channel and position of element `index` of [samples, channels, size], channels
// fastest, as images are usually stored.
struct Pixel {
  std::int64_t n, c;
  Coord3 at;
};

// Finds the pixels of images.
struct Pixels {
  Divisor channels, height, width, depth;

  Pixels(std::int64_t channels, const std::int64_t* size)
      : channels(channels), height(size[1]), width(size[2]), depth(size[0]) {}
  HD Pixel operator()(std::int64_t index) const {
    const auto [position, c] = channels(index);
    const auto [row, w] = width(position);
    const auto [plane, h] = height(row);
    const auto [n, d] = depth(plane);
    return {n, c, {{d, h, w}}};
  }
};

HD inline std::int64_t offset_of(const View& v, std::int64_t n, std::int64_t c, const Coord3& p) {
  return n * v.stride[0] + c * v.stride[1] + p.at[0] * v.stride[2] + p.at[1] * v.stride[3] +
         p.at[2] * v.stride[4];
}

template <class T, class I>
struct MaxPool {
  Geometry g;
  Pixels outputs;
  View x, y, argmax;
  HD void operator()(std::int64_t index) const {
    using A = acc_t<T>;
    const Pixel to = outputs(index);
    // A window entirely in the padding gives zero; its tap 0 is padding too, so it gets no
    // gradient.
    A best = A{0};
    std::int64_t at = 0;
    bool none = true;
    for_each_pixel(g, to.at, [&](std::int64_t tap, const Coord3& pixel) {
      const A v = A(x.as<const T>()[offset_of(x, to.n, to.c, pixel)]);
      const bool larger = none || takes_over(v, best);
      best = larger ? v : best;
      at = larger ? tap : at;
      none = false;
    });
    y.as<T>()[offset_of(y, to.n, to.c, to.at)] = T(best);
    argmax.as<I>()[offset_of(argmax, to.n, to.c, to.at)] = static_cast<I>(at);
  }
};

template <class T, class I>
struct MaxPoolGrad {
  Geometry g;
  Pixels inputs;
  View dy, argmax, dx;
  HD void operator()(std::int64_t index) const {
    using A = acc_t<T>;
    const Pixel to = inputs(index);
    A sum = A{0};
    for_each_position(g, to.at, [&](std::int64_t tap, const Coord3& from) {
      const I mine = argmax.as<const I>()[offset_of(argmax, to.n, to.c, from)];
      if (mine == static_cast<I>(tap)) {
        sum += A(dy.as<const T>()[offset_of(dy, to.n, to.c, from)]);
      }
    });
    dx.as<T>()[offset_of(dx, to.n, to.c, to.at)] = T(sum);
  }
};

template <class T>
struct AvgPool {
  Geometry g;
  Pixels outputs;
  bool count_padding;
  View x, y;
  HD void operator()(std::int64_t index) const {
    using A = acc_t<T>;
    const Pixel to = outputs(index);
    A sum = A{0};
    for_each_pixel(g, to.at, [&](std::int64_t, const Coord3& pixel) {
      sum += A(x.as<const T>()[offset_of(x, to.n, to.c, pixel)]);
    });
    y.as<T>()[offset_of(y, to.n, to.c, to.at)] =
        T(sum * static_cast<A>(weight(g, to.at, count_padding)));
  }
};

template <class T>
struct AvgPoolGrad {
  Geometry g;
  Pixels inputs;
  bool count_padding;
  View dy, dx;
  HD void operator()(std::int64_t index) const {
    using A = acc_t<T>;
    const Pixel to = inputs(index);
    A sum = A{0};
    for_each_position(g, to.at, [&](std::int64_t, const Coord3& from) {
      sum += A(dy.as<const T>()[offset_of(dy, to.n, to.c, from)]) *
             static_cast<A>(weight(g, from, count_padding));
    });
    dx.as<T>()[offset_of(dx, to.n, to.c, to.at)] = T(sum);
  }
};

template <class Exec>
void DeviceBackend<Exec>::max_pool(View x, const Window& window, View y, View argmax) {
  const Exec exec = execution("max_pool", {&x, &y, &argmax});
  const Geometry g(x, y, window);
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    with_index(argmax.dtype, [&]<class I>(std::type_identity<I>) {
      exec.for_each(y.numel(), MaxPool<T, I>{g, Pixels(g.channels, g.out), x, y, argmax});
    });
  });
}

template <class Exec>
void DeviceBackend<Exec>::max_pool_grad(View dy, View argmax, const Window& window, View dx) {
  const Exec exec = execution("max_pool_grad", {&dy, &argmax, &dx});
  const Geometry g(dx, dy, window);
  if (dx.numel() == 0) return;
  dispatch_float(dy.dtype, [&]<class T>(std::type_identity<T>) {
    with_index(argmax.dtype, [&]<class I>(std::type_identity<I>) {
      exec.for_each(dx.numel(), MaxPoolGrad<T, I>{g, Pixels(g.channels, g.in), dy, argmax, dx});
    });
  });
}

template <class Exec>
void DeviceBackend<Exec>::avg_pool(View x, const Window& window, bool count_padding, View y) {
  const Exec exec = execution("avg_pool", {&x, &y});
  const Geometry g(x, y, window);
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    exec.for_each(y.numel(), AvgPool<T>{g, Pixels(g.channels, g.out), count_padding, x, y});
  });
}

template <class Exec>
void DeviceBackend<Exec>::avg_pool_grad(View dy, const Window& window, bool count_padding,
                                        View dx) {
  const Exec exec = execution("avg_pool_grad", {&dy, &dx});
  const Geometry g(dx, dy, window);
  if (dx.numel() == 0) return;
  dispatch_float(dy.dtype, [&]<class T>(std::type_identity<T>) {
    exec.for_each(dx.numel(), AvgPoolGrad<T>{g, Pixels(g.channels, g.in), count_padding, dy, dx});
  });
}

}  // namespace sotto
