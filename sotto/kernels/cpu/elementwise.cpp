// Elementwise primitives: one loop for each functor and element type.
#include <algorithm>
#include <array>
#include <utility>

#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/strided_loop.h"
#include "sotto/kernels/functors.h"

namespace sotto {

namespace {

// Operands pass through the functors in blocks of this many values of type float or double, so
// that each functor is compiled twice and its loop is always contiguous.
constexpr std::int64_t block = 256;

// `count` values of x from `offset` on, `step` apart: in place when they are what is wanted, else
// converted into the buffer.
template <class A>
const A* load(View x, std::int64_t offset, std::int64_t step, std::int64_t count, A* buffer) {
  if (x.dtype == dtype_of<A>() && step == 1) return x.as<A>() + offset;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    const T* from = x.as<T>() + offset;
    if (step == 0) {
      std::fill(buffer, buffer + count, static_cast<A>(acc_t<T>(*from)));
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
    for (std::int64_t i = 0; i < count; ++i) to[i * step] = T(static_cast<acc_t<T>>(from[i]));
  });
}

// y = f(x...), computed in A; y is the last view.
template <class A, std::size_t N, class F>
void map(const std::array<View, N>& views, F f) {
  const View y = views[N - 1];
  strided_loop(views, [&](const auto& offset, const auto& step, std::int64_t count) {
    A buffers[N][block];
    for (std::int64_t at = 0; at < count; at += block) {
      const std::int64_t part = std::min(block, count - at);
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        const std::array<const A*, N - 1> x{
            load(views[I], offset[I] + at * step[I], step[I], part, buffers[I])...};
        const std::int64_t start = offset[N - 1] + at * step[N - 1];
        const bool direct = y.dtype == dtype_of<A>() && step[N - 1] == 1;
        A* to = direct ? y.as<A>() + start : buffers[N - 1];
        for (std::int64_t i = 0; i < part; ++i) to[i] = f(x[I][i]...);
        if (!direct) store(to, y, start, step[N - 1], part);
      }(std::make_index_sequence<N - 1>{});
    }
  });
}

// Calls call(A{}) with double for f64 and float for the narrower types.
template <class F>
void in_arithmetic_type(Dtype dtype, F&& call) {
  if (dtype == Dtype::f64) {
    call(double{});
  } else {
    call(float{});
  }
}

template <class F>
void dispatch_unary(int op, Constants c, Dtype dtype, F&& call) {
  UnaryFunctors::at(op, [&]<class Functor>(std::type_identity<Functor>) {
    in_arithmetic_type(dtype, [&](auto a) { call(configured<Functor>(c), a); });
  });
}

template <class F>
void dispatch_binary(int op, Dtype dtype, F&& call) {
  BinaryFunctors::at(op, [&]<class Functor>(std::type_identity<Functor>) {
    in_arithmetic_type(dtype, [&](auto a) { call(Functor{}, a); });
  });
}

template <class X, class Y>
void scaled_sum(double alpha, View x, double beta, View y) {
  using A = acc_t<Y>;
  const A a = static_cast<A>(alpha);
  const A b = static_cast<A>(beta);
  strided_loop(std::array{x, y}, [&](const auto& offset, const auto& step, std::int64_t count) {
    const X* p = x.as<X>() + offset[0];
    Y* q = y.as<Y>() + offset[1];
    for (std::int64_t i = 0; i < count; ++i) {
      const A value = a * static_cast<A>(static_cast<acc_t<X>>(p[i * step[0]]));
      Y& slot = q[i * step[1]];
      slot = Y(beta == 0 ? value : value + b * A(slot));
    }
  });
}

}  // namespace

void CpuBackend::unary(int op, Constants c, View x, View y) {
  dispatch_unary(op, c, x.dtype, [&]<class A>(auto f, A) {
    map<A>(std::array{x, y}, [f](A v) { return f(v); });
  });
}

void CpuBackend::unary_grad(int op, Constants c, View x, View y, View dy, View dx) {
  dispatch_unary(op, c, x.dtype, [&]<class A>(auto f, A) {
    map<A>(std::array{x, y, dy, dx},
           [f](A v, A value, A d) { return d * f.grad(v, value); });
  });
}

void CpuBackend::binary(int op, View a, View b, View y) {
  dispatch_binary(op, a.dtype, [&]<class A>(auto f, A) {
    map<A>(std::array{a, b, y}, [f](A u, A v) { return f(u, v); });
  });
}

void CpuBackend::binary_grad(int op, int which, View a, View b, View dy, View d) {
  dispatch_binary(op, a.dtype, [&]<class A>(auto f, A) {
    if (which == 0) {
      map<A>(std::array{a, b, dy, d},
             [f](A u, A v, A g) { return g * f.grad_a(u, v); });
    } else {
      map<A>(std::array{a, b, dy, d},
             [f](A u, A v, A g) { return g * f.grad_b(u, v); });
    }
  });
}

void CpuBackend::where(View condition, View a, View b, View y) {
  dispatch(condition.dtype, [&]<class C>(std::type_identity<C>) {
    dispatch_float(a.dtype, [&]<class T>(std::type_identity<T>) {
      strided_loop(std::array{condition, a, b, y},
                   [&](const auto& offset, const auto& step, std::int64_t count) {
                     const C* c = condition.as<C>() + offset[0];
                     const T* p = a.as<T>() + offset[1];
                     const T* q = b.as<T>() + offset[2];
                     T* r = y.as<T>() + offset[3];
                     for (std::int64_t i = 0; i < count; ++i) {
                       const bool first = acc_t<C>(c[i * step[0]]) != 0;
                       r[i * step[3]] = first ? p[i * step[1]] : q[i * step[2]];
                     }
                   });
    });
  });
}

void CpuBackend::axpby(double alpha, View x, double beta, View y) {
  dispatch_float(x.dtype, [&]<class X>(std::type_identity<X>) {
    dispatch_float(y.dtype,
                   [&]<class Y>(std::type_identity<Y>) { scaled_sum<X, Y>(alpha, x, beta, y); });
  });
}

}  // namespace sotto
