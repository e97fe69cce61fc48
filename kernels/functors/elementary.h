// Elementary functions of one variable as functors (functors.h defines functors).
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/backend.h"
#include "kernels/functors/scalar_math.h"

namespace sotto::functors {

struct Exp {
  static constexpr const char* name = "exp";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::second;
  template <class T>
  HD T operator()(T x) const {
    return math::exp(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return y;
  }
};

struct Expm1 {
  static constexpr const char* name = "expm1";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::second;
  template <class T>
  HD T operator()(T x) const {
    return std::expm1(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return y + 1;
  }
};

struct Log {
  static constexpr const char* name = "log";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = 0.2, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return std::log(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / x;
  }
};

struct Log1p {
  static constexpr const char* name = "log1p";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = -0.7, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return std::log1p(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / (1 + x);
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::second;
  static constexpr double low = 0.2, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return T(0.5) / y;
  }
};

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  static constexpr bool needs_f32 = true;
  static constexpr double low = 0.2, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return 1 / std::sqrt(x);
  }
  template <class T>
  HD T grad(T x, T y) const {
    return -y / (2 * x);
  }
};

struct Square {
  static constexpr const char* name = "square";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x * x;
  }
  template <class T>
  HD T grad(T x, T) const {
    return 2 * x;
  }
};

struct Sin {
  static constexpr const char* name = "sin";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::sin(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return std::cos(x);
  }
};

struct Cos {
  static constexpr const char* name = "cos";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::cos(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return -std::sin(x);
  }
};

struct Tan {
  static constexpr const char* name = "tan";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::second;
  static constexpr double low = -1.2, high = 1.2;
  template <class T>
  HD T operator()(T x) const {
    return std::tan(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return 1 + y * y;
  }
};

struct Asin {
  static constexpr const char* name = "asin";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = -0.9, high = 0.9;
  template <class T>
  HD T operator()(T x) const {
    return std::asin(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / std::sqrt(1 - x * x);
  }
};

struct Acos {
  static constexpr const char* name = "acos";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = -0.9, high = 0.9;
  template <class T>
  HD T operator()(T x) const {
    return std::acos(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return -1 / std::sqrt(1 - x * x);
  }
};

struct Atan {
  static constexpr const char* name = "atan";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::atan(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / (1 + x * x);
  }
};

struct Sinh {
  static constexpr const char* name = "sinh";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::sinh(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return std::cosh(x);
  }
};

struct Cosh {
  static constexpr const char* name = "cosh";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::cosh(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return std::sinh(x);
  }
};

struct Asinh {
  static constexpr const char* name = "asinh";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::asinh(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / std::sqrt(1 + x * x);
  }
};

struct Acosh {
  static constexpr const char* name = "acosh";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = 1.2, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return std::acosh(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / std::sqrt((x - 1) * (x + 1));
  }
};

struct Atanh {
  static constexpr const char* name = "atanh";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr double low = -0.9, high = 0.9;
  template <class T>
  HD T operator()(T x) const {
    return std::atanh(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 1 / ((1 - x) * (1 + x));
  }
};

struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::second;
  static constexpr double low = 0.2, high = 4;
  template <class T>
  HD T operator()(T x) const {
    return 1 / x;
  }
  template <class T>
  HD T grad(T, T y) const {
    return -y * y;
  }
};

struct Erf {
  static constexpr const char* name = "erf";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return math::erf(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return 2 * std::numbers::inv_sqrtpi_v<T> * math::exp(-x * x);
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return std::abs(x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return x > 0 ? T(1) : x < 0 ? T(-1) : T(0);
  }
};

// x^a
struct Pow {
  static constexpr const char* name = "pow";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{3, 0};
  double exponent;
  HD explicit Pow(Constants c) : exponent(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return std::pow(x, T(exponent));
  }
  template <class T>
  HD T grad(T x, T) const {
    return T(exponent) * std::pow(x, T(exponent - 1));
  }
};

// a x + b
struct Affine {
  static constexpr const char* name = "affine";
  static constexpr Reads reads = Reads::nothing;
  static constexpr Constants sample{1.5, -0.25};
  double factor, offset;
  HD explicit Affine(Constants c) : factor(c.a), offset(c.b) {}
  template <class T>
  HD T operator()(T x) const {
    return T(factor) * x + T(offset);
  }
  template <class T>
  HD T grad(T, T) const {
    return T(factor);
  }
};

}  // namespace sotto::functors
