// Elementwise primitives of one operand.
#pragma once

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/runtime/device_backend.h"

namespace sotto {

// dy f'(x), given y = f(x)
template <class F>
struct UnaryGrad {
  F f;
  template <class A>
  HD A operator()(A x, A y, A dy) const {
    return dy * f.grad(x, y);
  }
};

struct AnyUnary {
  int op;
  Constants c;
  template <class A>
  HD A operator()(A x) const {
    A y = x;
    with_functor(UnaryFunctors{}, op,
                 [&]<class F>(std::type_identity<F>) { y = configured<F>(c)(x); });
    return y;
  }
};

struct AnyUnaryGrad {
  int op;
  Constants c;
  template <class A>
  HD A operator()(A x, A y, A dy) const {
    A dx = dy;
    with_functor(UnaryFunctors{}, op, [&]<class F>(std::type_identity<F>) {
      dx = UnaryGrad<F>{configured<F>(c)}(x, y, dy);
    });
    return dx;
  }
};

template <class Exec>
void DeviceBackend<Exec>::unary(int op, Constants c, View x, View y) {
  const Exec exec = execution("unary", {&x, &y});
  const std::array views{x, y};
  bool done = false;
  UnaryFunctors::at(op, [&]<class F>(std::type_identity<F>) {
    done = packed_map(exec, views, configured<F>(c));
  });
  if (done) return;
  with_arithmetic(x.dtype, [&](auto a) { strided_map<decltype(a)>(exec, views, AnyUnary{op, c}); });
}

template <class Exec>
void DeviceBackend<Exec>::unary_grad(int op, Constants c, View x, View y, View dy, View dx) {
  const Exec exec = execution("unary_grad", {&x, &y, &dy, &dx});
  const std::array views{x, y, dy, dx};
  bool done = false;
  UnaryFunctors::at(op, [&]<class F>(std::type_identity<F>) {
    done = packed_map(exec, views, UnaryGrad<F>{configured<F>(c)});
  });
  if (done) return;
  with_arithmetic(x.dtype, [&](auto a) {
    strided_map<decltype(a)>(exec, views, AnyUnaryGrad{op, c});
  });
}

}  // namespace sotto
