// Images and weights of the portable convolutions as factors of products.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/grain.h"

namespace sotto {

// Calls f(std::type_identity<T>{}) with the accumulator type of a storage dtype.
template <class F>
void with_arithmetic(Dtype dtype, F&& f) {
  if (dtype == Dtype::f64) {
    f(std::type_identity<double>{});
  } else {
    f(std::type_identity<float>{});
  }
}

template <class T>
Matrix row_major(T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride) {
  return {data, dtype_of<T>(), rows, cols, row_stride, 1};
}

// Calls f(weight, packed) for each weight of [o, c, kd, kh, kw] and its packed copy, ordered [o,
// taps, c].
template <class S, class T, class F>
void for_each_weight(const View& w, T* packed, const F& f) {
  const std::int64_t channels = w.size[1], step = w.stride[1],
                     count = w.size[2] * w.size[3] * w.size[4];
  std::vector<std::int64_t> taps;
  bool together = step == count && count > 1;
  for_each_offset(Shape(std::span(w.size + 2, 3)), Shape(std::span(w.stride + 2, 3)),
                  [&](std::int64_t tap) {
                    together = together && tap == std::ssize(taps);
                    taps.push_back(tap);
                  });
  const auto output = [&](S* from, T* to) {
    if (together) {  // the taps of a channel lie side by side
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t k = 0; k < count; ++k) f(from[c * count + k], to[k * channels + c]);
      }
      return;
    }
    for (const std::int64_t tap : taps) {
      for (std::int64_t c = 0; c < channels; ++c) f(from[c * step + tap], *to++);
    }
  };
  parallel_for(w.size[0], elementwise_grain / (channels * count + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t o = begin; o < end; ++o)
                   output(w.as<S>() + o * w.stride[0], packed + o * channels * count);
               });
}

// packed [o, taps, c] = w
template <class T>
void pack(const View& w, T* packed) {
  dispatch_float(w.dtype, [&]<class S>(std::type_identity<S>) {
    for_each_weight<S>(w, packed, [](const S& from, T& to) { to = static_cast<acc_t<S>>(from); });
  });
}

// dw = packed, or dw += packed.
template <class T>
void unpack(T* packed, bool add, const View& dw) {
  dispatch_float(dw.dtype, [&]<class S>(std::type_identity<S>) {
    const auto rounded = [](T x) { return static_cast<S>(static_cast<acc_t<S>>(x)); };
    if (!add)
      return for_each_weight<S>(dw, packed, [&](S& to, const T& from) { to = rounded(from); });
    for_each_weight<S>(dw, packed, [&](S& to, const T& from) {
      to = rounded(static_cast<T>(static_cast<acc_t<S>>(to)) + from);
    });
  });
}

// Multiply-adds of one sample in each pass.
inline std::int64_t sample_work(const Geometry& g) { return g.positions() * g.outputs * g.taps(); }

// The weights of a group, [outputs of the group, taps]; and the group's part of some rows of y.
template <class T>
Matrix weights_of(const Geometry& g, std::int64_t group, T* packed) {
  const std::int64_t part = g.group_outputs() * g.taps();
  return row_major(packed + group * part, g.group_outputs(), g.taps(), g.taps());
}
template <class T>
Matrix outputs_of(const Geometry& g, std::int64_t group, Range rows, T* y) {
  T* first = y + rows.first * g.outputs + group * g.group_outputs();
  return row_major(first, rows.count(), g.group_outputs(), g.outputs);
}

}  // namespace sotto
