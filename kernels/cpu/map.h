// Applies a function of values to views of any strides and types: the loop of all elementwise
// primitives.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/strided_loop.h"

namespace sotto {

// Functors see blocks of this many contiguous values of type float or double, so that each functor
// is compiled for only these two types.
inline constexpr std::int64_t map_block = 256;

// `count` values of x from `offset` on with stride `step`, as contiguous values of type A: in place
// if they are that already, else converted into the buffer.
template <class A>
const A* load(const View& x, std::int64_t offset, std::int64_t step, std::int64_t count,
              A* buffer) {
  if (x.dtype == dtype_of<A>() && step <= 1 && step >= 0) {
    const A* const from = x.as<A>() + offset;
    if (step == 1) return from;
    std::fill(buffer, buffer + count, *from);
    return buffer;
  }
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    const T* from = x.as<T>() + offset;
    if (step == 0) {
      std::fill(buffer, buffer + count, static_cast<A>(acc_t<T>(*from)));
    } else if (step == 1) {
      simd_dispatch_avx512([&] {
        for (std::int64_t i = 0; i < count; ++i) buffer[i] = static_cast<A>(acc_t<T>(from[i]));
      });
    } else {
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = static_cast<A>(acc_t<T>(from[i * step]));
    }
  });
  return buffer;
}

template <class A>
void store(const A* from, View y, std::int64_t offset, std::int64_t step, std::int64_t count) {
  dispatch_float(y.dtype, [&]<class T>(std::type_identity<T>) {
    T* to = y.as<T>() + offset;
    if (step == 1) {
      simd_dispatch_avx512([&] {
        for (std::int64_t i = 0; i < count; ++i) to[i] = T(static_cast<acc_t<T>>(from[i]));
      });
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * step] = T(static_cast<acc_t<T>>(from[i]));
    }
  });
}

// Computes y[i] from the values of N - 1 operands, for `count` contiguous values.
template <class A, std::size_t N>
using Block = std::function<void(const std::array<const A*, N - 1>& x, A* y, std::int64_t count)>;

// Calls f for the blocks of all operands; y is the last view. It is separate from map(), so that it
// is compiled once per number of operands and not once per functor.
template <class A, std::size_t N>
void for_each_block(const std::array<View, N>& views, const Block<A, N>& f) {
  const View y = views[N - 1];
  strided_loop(views, [&](const auto& offset, const auto& step, std::int64_t count) {
    A buffers[N][map_block];
    for (std::int64_t at = 0; at < count; at += map_block) {
      const std::int64_t part = std::min(map_block, count - at);
      const std::int64_t start = offset[N - 1] + at * step[N - 1];
      const bool direct = y.dtype == dtype_of<A>() && step[N - 1] == 1;
      A* to = direct ? y.as<A>() + start : buffers[N - 1];
      std::array<const A*, N - 1> x;
      for (std::size_t i = 0; i < N - 1; ++i) {
        x[i] = load(views[i], offset[i] + at * step[i], step[i], part, buffers[i]);
      }
      f(x, to, part);
      if (!direct) store(to, y, start, step[N - 1], part);
    }
  });
}

// y = f(x...), computed in A; y is the last view.
template <class A, std::size_t N, class F>
void map(const std::array<View, N>& views, F f) {
  for_each_block<A, N>(views, [f](const auto& x, A* y, std::int64_t count) {
    simd_dispatch_avx512([&] {
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        for (std::int64_t i = 0; i < count; ++i) y[i] = f(x[I][i]...);
      }
      (std::make_index_sequence<N - 1>{});
    });
  });
}

// Calls call(A{}) with double for f64 and with float for f32 and 16-bit types.
template <class F>
void in_arithmetic_type(Dtype dtype, F&& call) {
  if (dtype == Dtype::f64) {
    call(double{});
  } else {
    call(float{});
  }
}

}  // namespace sotto
