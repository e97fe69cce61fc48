// Elementwise primitives of one operand: one loop per functor and arithmetic type.
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/map.h"
#include "kernels/functors/functors.h"

namespace sotto {

namespace {

template <class F>
void dispatch_unary(int op, Constants c, Dtype dtype, F&& call) {
  UnaryFunctors::at(op, [&]<class Functor>(std::type_identity<Functor>) {
    in_arithmetic_type(dtype, [&](auto a) { call(configured<Functor>(c), a); });
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
    map<A>(std::array{x, y, dy, dx}, [f](A v, A value, A d) { return d * f.grad(v, value); });
  });
}

}  // namespace sotto
