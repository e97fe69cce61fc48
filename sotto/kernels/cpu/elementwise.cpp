// Elementwise primitives: one loop for each functor and element type.
#include <type_traits>

#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/strided_loop.h"
#include "sotto/kernels/functors.h"

namespace sotto {

namespace {

// y = f(x...) over views of one element type; y is the last view.
template <class T, std::size_t N, class F>
void map(const std::array<View, N>& views, F f) {
  using A = acc_t<T>;
  strided_loop(views, [&](const auto& offset, const auto& step, std::int64_t count) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const std::array<const T*, N - 1> x{(views[I].template as<T>() + offset[I])...};
      T* y = views[N - 1].template as<T>() + offset[N - 1];
      if (step[N - 1] == 1 && ((step[I] == 1) && ...)) {
        for (std::int64_t i = 0; i < count; ++i) y[i] = T(f(A(x[I][i])...));
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          y[i * step[N - 1]] = T(f(A(x[I][i * step[I]])...));
        }
      }
    }(std::make_index_sequence<N - 1>{});
  });
}

template <class F>
void dispatch_unary(int op, Constants c, Dtype dtype, F&& call) {
  UnaryFunctors::at(op, [&]<class Functor>(std::type_identity<Functor>) {
    dispatch_float(dtype, [&]<class T>(std::type_identity<T>) {
      call(configured<Functor>(c), std::type_identity<T>{});
    });
  });
}

template <class F>
void dispatch_binary(int op, Dtype dtype, F&& call) {
  BinaryFunctors::at(op, [&]<class Functor>(std::type_identity<Functor>) {
    dispatch_float(dtype, [&]<class T>(std::type_identity<T>) {
      call(Functor{}, std::type_identity<T>{});
    });
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
  dispatch_unary(op, c, x.dtype, [&]<class T>(auto f, std::type_identity<T>) {
    map<T>(std::array{x, y}, [f](auto v) { return f(v); });
  });
}

void CpuBackend::unary_grad(int op, Constants c, View x, View y, View dy, View dx) {
  dispatch_unary(op, c, x.dtype, [&]<class T>(auto f, std::type_identity<T>) {
    map<T>(std::array{x, y, dy, dx},
           [f](auto v, auto value, auto d) { return d * f.grad(v, value); });
  });
}

void CpuBackend::binary(int op, View a, View b, View y) {
  dispatch_binary(op, a.dtype, [&]<class T>(auto f, std::type_identity<T>) {
    map<T>(std::array{a, b, y}, [f](auto u, auto v) { return f(u, v); });
  });
}

void CpuBackend::binary_grad(int op, int which, View a, View b, View dy, View d) {
  dispatch_binary(op, a.dtype, [&]<class T>(auto f, std::type_identity<T>) {
    if (which == 0) {
      map<T>(std::array{a, b, dy, d},
             [f](auto u, auto v, auto g) { return g * f.grad_a(u, v); });
    } else {
      map<T>(std::array{a, b, dy, d},
             [f](auto u, auto v, auto g) { return g * f.grad_b(u, v); });
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
