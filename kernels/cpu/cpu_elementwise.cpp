// Elementwise primitives of two or more operands.
#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/map.h"
#include "kernels/functors/functors.h"

namespace sotto {

namespace {

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
    const auto term = [a](const X* at) { return a * static_cast<A>(static_cast<acc_t<X>>(*at)); };
    const auto adjacent = [=] {
      if (beta == 0) {
        for (std::int64_t i = 0; i < count; ++i) q[i] = Y(term(p + i));
      } else {
        for (std::int64_t i = 0; i < count; ++i) q[i] = Y(term(p + i) + b * A(q[i]));
      }
    };
    if (step[0] == 1 && step[1] == 1) return simd_dispatch_avx512(adjacent);
    for (std::int64_t i = 0; i < count; ++i) {
      Y& to = q[i * step[1]];
      const A own = term(p + i * step[0]);
      to = Y(beta == 0 ? own : own + b * A(to));
    }
  });
}

// True if x has one value per slice along axis 0.
bool one_for_each_row(View x) {
  for (int i = 1; i < x.rank; ++i) {
    if (x.size[i] != 1 && x.stride[i] != 0) return false;
  }
  return true;
}

// y[n, ..] = x[n, ..] w[n]
template <class T>
void scaled_rows(View x, View w, View y) {
  const std::int64_t n = x.size[0], width = n == 0 ? 0 : x.numel() / n;
  parallel_for(n, elementwise_grain / std::max<std::int64_t>(width, 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 simd_dispatch([&] {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const T factor = w.as<T>()[row * w.stride[0]];
                     const T* from = x.as<T>() + row * width;
                     T* to = y.as<T>() + row * width;
                     for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] * factor;
                   }
                 });
               });
}

// y = x w with one weight per row, as when per-sample gradients are scaled by clip factors. For
// short rows, starting a row in map() costs more than the row. Returns false without any effect for
// any other operation.
bool scale_rows(int op, View x, View w, View y) {
  if (op != binary_index<functors::Mul> || x.rank < 2 || !x.contiguous() || !y.contiguous())
    return false;
  const std::int64_t n = x.size[0], all = x.numel();
  if (all <= n || all > n * map_block || !one_for_each_row(w)) return false;
  if (x.dtype == Dtype::f32) {
    scaled_rows<float>(x, w, y);
  } else if (x.dtype == Dtype::f64) {
    scaled_rows<double>(x, w, y);
  }
  return x.dtype == Dtype::f32 || x.dtype == Dtype::f64;
}

}  // namespace

void CpuBackend::binary(int op, View a, View b, View y) {
  if (scale_rows(op, a, b, y)) return;
  dispatch_binary(op, a.dtype, [&]<class A>(auto f, A) {
    map<A>(std::array{a, b, y}, [f](A u, A v) { return f(u, v); });
  });
}

void CpuBackend::binary_grad(int op, int which, View a, View b, View dy, View d) {
  dispatch_binary(op, a.dtype, [&]<class A>(auto f, A) {
    if (which == 0) {
      map<A>(std::array{a, b, dy, d}, [f](A u, A v, A g) { return g * f.grad_a(u, v); });
    } else {
      map<A>(std::array{a, b, dy, d}, [f](A u, A v, A g) { return g * f.grad_b(u, v); });
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
