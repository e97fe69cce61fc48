// Every elementwise operation once: its value and, beside it, its derivative, for all devices.
// Registering one is an entry in Unary or Binary below; tests walk the lists.
//
// A unary functor gives y = f(x) and grad(x, y) = f'(x); one with constants is built from them. A
// binary functor gives y = f(a, b), grad_a(a, b) and grad_b(a, b). `low` and `high`, where present,
// bound the arguments that tests draw. T is float or double.
#pragma once

#include <cmath>
#include <numbers>

#include "sotto/kernels/backend.h"
#include "sotto/kernels/math.h"

namespace sotto {

struct Relu {
  static constexpr const char* name = "relu";
  template <class T> HD T operator()(T x) const { return x > 0 || x != x ? x : T(0); }
  template <class T> HD T grad(T x, T) const { return x > 0 ? T(1) : T(0); }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Constants sample{0.05, 0};
  double slope;
  HD explicit LeakyRelu(Constants c) : slope(c.a) {}
  template <class T> HD T operator()(T x) const { return x > 0 ? x : T(slope) * x; }
  template <class T> HD T grad(T x, T) const { return x > 0 ? T(1) : T(slope); }
};

struct Elu {
  static constexpr const char* name = "elu";
  static constexpr Constants sample{1.3, 0};
  double alpha;
  HD explicit Elu(Constants c) : alpha(c.a) {}
  template <class T> HD T operator()(T x) const { return x > 0 ? x : T(alpha) * std::expm1(x); }
  template <class T> HD T grad(T x, T y) const { return x > 0 ? T(1) : y + T(alpha); }
};

// Klambauer et al. 2017.
struct Selu {
  static constexpr const char* name = "selu";
  static constexpr double scale = 1.0507009873554804934193349852946;
  static constexpr double alpha = 1.6732632423543772848170429916717;
  template <class T> HD T operator()(T x) const {
    return x > 0 ? T(scale) * x : T(scale * alpha) * std::expm1(x);
  }
  template <class T> HD T grad(T x, T y) const { return x > 0 ? T(scale) : y + T(scale * alpha); }
};

struct Celu {
  static constexpr const char* name = "celu";
  static constexpr Constants sample{0.7, 0};
  double alpha;
  HD explicit Celu(Constants c) : alpha(c.a) {}
  template <class T> HD T operator()(T x) const {
    return x > 0 ? x : T(alpha) * std::expm1(x / T(alpha));
  }
  template <class T> HD T grad(T x, T) const { return x > 0 ? T(1) : std::exp(x / T(alpha)); }
};

// x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016).
struct Gelu {
  static constexpr const char* name = "gelu";
  template <class T> HD static T phi(T x) { return std::erfc(-x / std::numbers::sqrt2_v<T>) / 2; }
  template <class T> HD T operator()(T x) const { return x * phi(x); }
  template <class T> HD T grad(T x, T) const {
    constexpr T density = std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
    return phi(x) + x * density * std::exp(-x * x / 2);
  }
};

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the same source's approximation.
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr double cubic = 0.044715;
  template <class T> HD static T inner(T x) {
    constexpr T root = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    return math::tanh(root * (x + T(cubic) * x * x * x));
  }
  template <class T> HD T operator()(T x) const { return x / 2 * (1 + inner(x)); }
  template <class T> HD T grad(T x, T) const {
    constexpr T root = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    const T t = inner(x);
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * T(cubic) * x * x);
  }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class T> HD T operator()(T x) const { return math::sigmoid(x); }
  template <class T> HD T grad(T, T y) const { return y * (1 - y); }
};

struct Silu {
  static constexpr const char* name = "silu";
  template <class T> HD T operator()(T x) const { return x * math::sigmoid(x); }
  template <class T> HD T grad(T x, T y) const {
    const T s = math::sigmoid(x);
    return s + y * (1 - s);
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  template <class T> HD T operator()(T x) const { return math::tanh(x); }
  template <class T> HD T grad(T, T y) const { return 1 - y * y; }
};

// log(1 + e^(beta x)) / beta; x itself where beta x is above the threshold.
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr Constants sample{1.5, 20};
  double beta, threshold;
  HD explicit Softplus(Constants c) : beta(c.a), threshold(c.b) {}
  template <class T> HD T operator()(T x) const {
    const T z = T(beta) * x;
    return z > T(threshold) ? x : ((z > 0 ? z : T(0)) + std::log1p(std::exp(z > 0 ? -z : z))) / T(beta);
  }
  template <class T> HD T grad(T x, T) const {
    return T(beta) * x > T(threshold) ? T(1) : math::sigmoid(T(beta) * x);
  }
};

// x tanh(log(1 + e^x)) (Misra 2019).
struct Mish {
  static constexpr const char* name = "mish";
  template <class T> HD static T softplus(T x) { return Softplus({1, 20})(x); }
  template <class T> HD T operator()(T x) const { return x * std::tanh(softplus(x)); }
  template <class T> HD T grad(T x, T) const {
    const T t = std::tanh(softplus(x));
    return t + x * (1 - t * t) * math::sigmoid(x);
  }
};

struct LogSigmoid {
  static constexpr const char* name = "logsigmoid";
  template <class T> HD T operator()(T x) const {
    return (x < 0 ? x : T(0)) - std::log1p(std::exp(x < 0 ? x : -x));
  }
  template <class T> HD T grad(T x, T) const { return math::sigmoid(-x); }
};

struct Softsign {
  static constexpr const char* name = "softsign";
  template <class T> HD T operator()(T x) const { return x / (1 + std::abs(x)); }
  template <class T> HD T grad(T x, T) const {
    const T d = 1 + std::abs(x);
    return 1 / (d * d);
  }
};

// x limited to [a, b]; hardtanh, relu6 and clamp are this. NaN stays.
struct Clamp {
  static constexpr const char* name = "clamp";
  static constexpr Constants sample{-0.7, 1.1};
  double low_limit, high_limit;
  HD explicit Clamp(Constants c) : low_limit(c.a), high_limit(c.b) {}
  template <class T> HD T operator()(T x) const {
    const T bounded = x < T(low_limit) ? T(low_limit) : x;
    return bounded > T(high_limit) ? T(high_limit) : bounded;
  }
  // At a limit the derivative is 1 for clamp in the field and 0 for relu6; no test draws it.
  template <class T> HD T grad(T x, T) const {
    return x > T(low_limit) && x < T(high_limit) ? T(1) : T(0);
  }
};

// x relu6(x + 3) / 6 (Howard et al. 2019).
struct Hardswish {
  static constexpr const char* name = "hardswish";
  template <class T> HD T operator()(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? x : x * (x + 3) / 6;
  }
  template <class T> HD T grad(T x, T) const {
    return x <= -3 ? T(0) : x >= 3 ? T(1) : (2 * x + 3) / 6;
  }
};

struct Hardsigmoid {
  static constexpr const char* name = "hardsigmoid";
  template <class T> HD T operator()(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? T(1) : (x + 3) / 6;
  }
  template <class T> HD T grad(T x, T) const { return x > -3 && x < 3 ? T(1) / 6 : T(0); }
};

struct Exp {
  static constexpr const char* name = "exp";
  template <class T> HD T operator()(T x) const { return math::exp(x); }
  template <class T> HD T grad(T, T y) const { return y; }
};

struct Expm1 {
  static constexpr const char* name = "expm1";
  template <class T> HD T operator()(T x) const { return std::expm1(x); }
  template <class T> HD T grad(T, T y) const { return y + 1; }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr double low = 0.2, high = 4;
  template <class T> HD T operator()(T x) const { return std::log(x); }
  template <class T> HD T grad(T x, T) const { return 1 / x; }
};

struct Log1p {
  static constexpr const char* name = "log1p";
  static constexpr double low = -0.7, high = 4;
  template <class T> HD T operator()(T x) const { return std::log1p(x); }
  template <class T> HD T grad(T x, T) const { return 1 / (1 + x); }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr double low = 0.2, high = 4;
  template <class T> HD T operator()(T x) const { return std::sqrt(x); }
  template <class T> HD T grad(T, T y) const { return T(0.5) / y; }
};

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr double low = 0.2, high = 4;
  template <class T> HD T operator()(T x) const { return 1 / std::sqrt(x); }
  template <class T> HD T grad(T x, T y) const { return -y / (2 * x); }
};

struct Square {
  static constexpr const char* name = "square";
  template <class T> HD T operator()(T x) const { return x * x; }
  template <class T> HD T grad(T x, T) const { return 2 * x; }
};

struct Sin {
  static constexpr const char* name = "sin";
  template <class T> HD T operator()(T x) const { return std::sin(x); }
  template <class T> HD T grad(T x, T) const { return std::cos(x); }
};

struct Cos {
  static constexpr const char* name = "cos";
  template <class T> HD T operator()(T x) const { return std::cos(x); }
  template <class T> HD T grad(T x, T) const { return -std::sin(x); }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr double low = 0.2, high = 4;
  template <class T> HD T operator()(T x) const { return 1 / x; }
  template <class T> HD T grad(T, T y) const { return -y * y; }
};

struct Erf {
  static constexpr const char* name = "erf";
  template <class T> HD T operator()(T x) const { return std::erf(x); }
  template <class T> HD T grad(T x, T) const {
    return 2 * std::numbers::inv_sqrtpi_v<T> * std::exp(-x * x);
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  template <class T> HD T operator()(T x) const { return std::abs(x); }
  template <class T> HD T grad(T x, T) const { return x > 0 ? T(1) : x < 0 ? T(-1) : T(0); }
};

// x^a
struct Pow {
  static constexpr const char* name = "pow";
  static constexpr Constants sample{3, 0};
  double exponent;
  HD explicit Pow(Constants c) : exponent(c.a) {}
  template <class T> HD T operator()(T x) const { return std::pow(x, T(exponent)); }
  template <class T> HD T grad(T x, T) const { return T(exponent) * std::pow(x, T(exponent - 1)); }
};

// a x + b
struct Affine {
  static constexpr const char* name = "affine";
  static constexpr Constants sample{1.5, -0.25};
  double factor, offset;
  HD explicit Affine(Constants c) : factor(c.a), offset(c.b) {}
  template <class T> HD T operator()(T x) const { return T(factor) * x + T(offset); }
  template <class T> HD T grad(T, T) const { return T(factor); }
};

struct Add {
  static constexpr const char* name = "add";
  template <class T> HD T operator()(T a, T b) const { return a + b; }
  template <class T> HD T grad_a(T, T) const { return T(1); }
  template <class T> HD T grad_b(T, T) const { return T(1); }
};

struct Sub {
  static constexpr const char* name = "sub";
  template <class T> HD T operator()(T a, T b) const { return a - b; }
  template <class T> HD T grad_a(T, T) const { return T(1); }
  template <class T> HD T grad_b(T, T) const { return T(-1); }
};

struct Mul {
  static constexpr const char* name = "mul";
  template <class T> HD T operator()(T a, T b) const { return a * b; }
  template <class T> HD T grad_a(T, T b) const { return b; }
  template <class T> HD T grad_b(T a, T) const { return a; }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr double low = 0.3, high = 3;
  template <class T> HD T operator()(T a, T b) const { return a / b; }
  template <class T> HD T grad_a(T, T b) const { return 1 / b; }
  template <class T> HD T grad_b(T a, T b) const { return -a / (b * b); }
};

struct Maximum {
  static constexpr const char* name = "maximum";
  template <class T> HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
  template <class T> HD T grad_a(T a, T b) const { return a > b ? T(1) : a == b ? T(0.5) : T(0); }
  template <class T> HD T grad_b(T a, T b) const { return a > b ? T(0) : a == b ? T(0.5) : T(1); }
};

struct Minimum {
  static constexpr const char* name = "minimum";
  template <class T> HD T operator()(T a, T b) const { return a < b || a != a ? a : b; }
  template <class T> HD T grad_a(T a, T b) const { return a < b ? T(1) : a == b ? T(0.5) : T(0); }
  template <class T> HD T grad_b(T a, T b) const { return a < b ? T(0) : a == b ? T(0.5) : T(1); }
};

template <class... F>
struct FunctorList {
  static constexpr int size = sizeof...(F);
  // The position of a functor; a compile-time error when it is not in the list.
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

using UnaryFunctors =
    FunctorList<Relu, LeakyRelu, Elu, Selu, Celu, Gelu, GeluTanh, Sigmoid, Silu, Tanh, Softplus,
                Mish, LogSigmoid, Softsign, Clamp, Hardswish, Hardsigmoid, Exp, Expm1, Log, Log1p,
                Sqrt, Rsqrt, Square, Sin, Cos, Reciprocal, Erf, Abs, Pow, Affine>;
using BinaryFunctors = FunctorList<Add, Sub, Mul, Div, Maximum, Minimum>;

template <class F>
inline constexpr int unary_index = UnaryFunctors::index<F>();
template <class F>
inline constexpr int binary_index = BinaryFunctors::index<F>();

// F built from its constants, where it has any.
template <class F>
HD F configured(Constants c) {
  if constexpr (std::is_constructible_v<F, Constants>) return F(c);
  else return F{};
}

}  // namespace sotto
