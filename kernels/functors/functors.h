// Every elementwise operation once: its value and, beside it, its derivative, for all devices.
// Registering one is an entry in UnaryFunctors or BinaryFunctors below; tests walk the lists.
//
// A unary functor gives y = f(x) and grad(x, y) = f'(x); one with constants is built from them. A
// binary functor gives y = f(a, b), grad_a(a, b) and grad_b(a, b). `reads`, or `reads_a` and
// `reads_b`, name the arguments that a derivative reads, both by default; the tape frees the
// others. `low` and `high`, where present, bound the arguments that tests draw. `needs_f32`: mixed
// precision computes it in f32 (Op::Precision). T is float or double. Functors have a namespace of
// their own, for layers have the same names.
#pragma once

#include "kernels/functors/activations.h"
#include "kernels/functors/elementary.h"

namespace sotto {

template <class... F>
struct FunctorList {
  static constexpr int size = sizeof...(F);
  // The index of a functor; a compile-time error if it is not in the list.
  template <class Wanted>
  static constexpr int index() {
    int at = 0;
    const bool found = ((std::is_same_v<F, Wanted> || ++at < 0) || ...);
    return found ? at : throw "not a registered functor";
  }
  // Calls f(std::type_identity<F>{}) for the functor at `index`.
  template <class Call>
  static void at(int index, Call&& call) {
    int i = 0;
    ((i++ == index ? call(std::type_identity<F>{}) : void()), ...);
  }
};

}  // namespace sotto

namespace sotto::functors {

struct Add {
  static constexpr const char* name = "add";
  static constexpr Reads reads_a = Reads::nothing, reads_b = Reads::nothing;
  template <class T>
  HD T operator()(T a, T b) const {
    return a + b;
  }
  template <class T>
  HD T grad_a(T, T) const {
    return T(1);
  }
  template <class T>
  HD T grad_b(T, T) const {
    return T(1);
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr Reads reads_a = Reads::nothing, reads_b = Reads::nothing;
  template <class T>
  HD T operator()(T a, T b) const {
    return a - b;
  }
  template <class T>
  HD T grad_a(T, T) const {
    return T(1);
  }
  template <class T>
  HD T grad_b(T, T) const {
    return T(-1);
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr Reads reads_a = Reads::second, reads_b = Reads::first;
  template <class T>
  HD T operator()(T a, T b) const {
    return a * b;
  }
  template <class T>
  HD T grad_a(T, T b) const {
    return b;
  }
  template <class T>
  HD T grad_b(T a, T) const {
    return a;
  }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads_a = Reads::second, reads_b = Reads::both;
  static constexpr double low = 0.3, high = 3;
  template <class T>
  HD T operator()(T a, T b) const {
    return a / b;
  }
  template <class T>
  HD T grad_a(T, T b) const {
    return 1 / b;
  }
  template <class T>
  HD T grad_b(T a, T b) const {
    return -a / (b * b);
  }
};

struct Maximum {
  static constexpr const char* name = "maximum";
  template <class T>
  HD T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
  template <class T>
  HD T grad_a(T a, T b) const {
    return a > b ? T(1) : a == b ? T(0.5) : T(0);
  }
  template <class T>
  HD T grad_b(T a, T b) const {
    return a > b ? T(0) : a == b ? T(0.5) : T(1);
  }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  template <class T>
  HD T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
  template <class T>
  HD T grad_a(T a, T b) const {
    return a < b ? T(1) : a == b ? T(0.5) : T(0);
  }
  template <class T>
  HD T grad_b(T a, T b) const {
    return a < b ? T(0) : a == b ? T(0.5) : T(1);
  }
};

// Comparisons give 1 or 0, and NaN if an operand is NaN; their derivative is 0.
struct Comparison {
  static constexpr Reads reads_a = Reads::nothing, reads_b = Reads::nothing;
  template <class T>
  HD T grad_a(T, T) const {
    return T(0);
  }
  template <class T>
  HD T grad_b(T, T) const {
    return T(0);
  }
  template <class T>
  HD static T truth(T a, T b, bool holds) {
    return a != a || b != b ? a + b : holds ? T(1) : T(0);
  }
};

struct Greater : Comparison {
  static constexpr const char* name = "greater";
  template <class T>
  HD T operator()(T a, T b) const {
    return truth(a, b, a > b);
  }
};

struct GreaterEqual : Comparison {
  static constexpr const char* name = "greater_equal";
  template <class T>
  HD T operator()(T a, T b) const {
    return truth(a, b, a >= b);
  }
};

struct Equal : Comparison {
  static constexpr const char* name = "equal";
  template <class T>
  HD T operator()(T a, T b) const {
    return truth(a, b, a == b);
  }
};

// a^b
struct Power {
  static constexpr const char* name = "power";
  static constexpr bool needs_f32 = true;
  static constexpr double low = 0.3, high = 3;
  // NaN operands give NaN, whereas std::pow(1, NaN) and std::pow(NaN, 0) are 1.
  template <class T>
  HD T operator()(T a, T b) const {
    return a != a || b != b ? a + b : std::pow(a, b);
  }
  template <class T>
  HD T grad_a(T a, T b) const {
    return b * std::pow(a, b - 1);
  }
  template <class T>
  HD T grad_b(T a, T b) const {
    return std::pow(a, b) * std::log(a);
  }
};

using UnaryFunctors =
    FunctorList<Relu, LeakyRelu, Elu, Selu, Celu, Gelu, GeluTanh, Sigmoid, Silu, Tanh, Softplus,
                Mish, LogSigmoid, Softsign, Clamp, Hardswish, Hardsigmoid, Exp, Expm1, Log, Log1p,
                Sqrt, Rsqrt, Square, Sin, Cos, Reciprocal, Erf, Abs, Pow, Affine, Hardshrink,
                Softshrink, Threshold, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh>;
using BinaryFunctors =
    FunctorList<Add, Sub, Mul, Div, Maximum, Minimum, Power, Greater, GreaterEqual, Equal>;

}  // namespace sotto::functors

namespace sotto {

using functors::BinaryFunctors, functors::UnaryFunctors;

template <class F>
inline constexpr int unary_index = UnaryFunctors::index<F>();
template <class F>
inline constexpr int binary_index = BinaryFunctors::index<F>();

// The arguments that the derivative of the functor at `index` reads: of (x, y) for a unary one, of
// (a, b) for operand `which`, 0 or 1, of a binary one.
inline Reads unary_reads(int index) {
  Reads reads = Reads::both;
  UnaryFunctors::at(index, [&]<class F>(std::type_identity<F>) {
    if constexpr (requires { F::reads; }) reads = F::reads;
  });
  return reads;
}
inline Reads binary_reads(int index, int which) {
  Reads reads = Reads::both;
  BinaryFunctors::at(index, [&]<class F>(std::type_identity<F>) {
    if constexpr (requires { F::reads_a; }) reads = which == 0 ? F::reads_a : F::reads_b;
  });
  return reads;
}

// An instance of F, constructed from the constants if F has any.
template <class F>
HD F configured(Constants c) {
  if constexpr (std::is_constructible_v<F, Constants>)
    return F(c);
  else
    return F{};
}

}  // namespace sotto
