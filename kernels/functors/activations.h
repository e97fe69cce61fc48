// Activation functions as functors (functors.h defines functors).
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/backend.h"
#include "kernels/functors/scalar_math.h"

namespace sotto::functors {

struct Relu {
  static constexpr const char* name = "relu";
  static constexpr Reads reads = Reads::second;
  template <class T>
  HD T operator()(T x) const {
    return x > 0 || x != x ? x : T(0);
  }
  template <class T>
  HD T grad(T, T y) const {
    return y > 0 ? T(1) : T(0);
  }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{0.05, 0};
  double slope;
  HD explicit LeakyRelu(Constants c) : slope(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return x > 0 ? x : T(slope) * x;
  }
  template <class T>
  HD T grad(T x, T) const {
    return x > 0 ? T(1) : T(slope);
  }
};

struct Elu {
  static constexpr const char* name = "elu";
  static constexpr Constants sample{1.3, 0};
  double alpha;
  HD explicit Elu(Constants c) : alpha(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return x > 0 ? x : T(alpha) * std::expm1(x);
  }
  template <class T>
  HD T grad(T x, T y) const {
    return x > 0 ? T(1) : y + T(alpha);
  }
};

// Klambauer et al. 2017.
struct Selu {
  static constexpr const char* name = "selu";
  static constexpr double scale = 1.0507009873554804934193349852946;
  static constexpr double alpha = 1.6732632423543772848170429916717;
  template <class T>
  HD T operator()(T x) const {
    return x > 0 ? T(scale) * x : T(scale * alpha) * std::expm1(x);
  }
  template <class T>
  HD T grad(T x, T y) const {
    return x > 0 ? T(scale) : y + T(scale * alpha);
  }
};

struct Celu {
  static constexpr const char* name = "celu";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{0.7, 0};
  double alpha;
  HD explicit Celu(Constants c) : alpha(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return x > 0 ? x : T(alpha) * std::expm1(x / T(alpha));
  }
  template <class T>
  HD T grad(T x, T) const {
    return x > 0 ? T(1) : std::exp(x / T(alpha));
  }
};

// x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016).
struct Gelu {
  static constexpr const char* name = "gelu";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x * math::normal(x).below;
  }
  template <class T>
  HD T grad(T x, T) const {
    constexpr T density = std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
    const math::Normal<T> at = math::normal(x);
    return at.below + x * density * at.bell;
  }
};

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the approximation of Hendrycks and Gimpel 2016.
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr Reads reads = Reads::first;
  static constexpr double cubic = 0.044715;
  template <class T>
  HD static T inner(T x) {
    constexpr T root = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    return math::tanh(root * (x + T(cubic) * x * x * x));
  }
  template <class T>
  HD T operator()(T x) const {
    return x / 2 * (1 + inner(x));
  }
  template <class T>
  HD T grad(T x, T) const {
    constexpr T root = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    const T t = inner(x);
    return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * T(cubic) * x * x);
  }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr Reads reads = Reads::second;
  template <class T>
  HD T operator()(T x) const {
    return math::sigmoid(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return y * (1 - y);
  }
};

struct Silu {
  static constexpr const char* name = "silu";
  template <class T>
  HD T operator()(T x) const {
    return x * math::sigmoid(x);
  }
  template <class T>
  HD T grad(T x, T y) const {
    const T s = math::sigmoid(x);
    return s + y * (1 - s);
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  static constexpr Reads reads = Reads::second;
  template <class T>
  HD T operator()(T x) const {
    return math::tanh(x);
  }
  template <class T>
  HD T grad(T, T y) const {
    return 1 - y * y;
  }
};

// log(1 + e^(beta x)) / beta; x itself if beta x exceeds the threshold.
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{1.5, 20};
  double beta, threshold;
  HD explicit Softplus(Constants c) : beta(c.a), threshold(c.b) {}
  template <class T>
  HD T operator()(T x) const {
    const T z = T(beta) * x;
    return z > T(threshold) ? x : math::softplus(z) / T(beta);
  }
  template <class T>
  HD T grad(T x, T) const {
    return T(beta) * x > T(threshold) ? T(1) : math::sigmoid(T(beta) * x);
  }
};

// x tanh(log(1 + e^x)) (Misra 2019).
struct Mish {
  static constexpr const char* name = "mish";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x * math::tanh(math::softplus(x));
  }
  template <class T>
  HD T grad(T x, T) const {
    const T t = math::tanh(math::softplus(x));
    return t + x * (1 - t * t) * math::sigmoid(x);
  }
};

struct LogSigmoid {
  static constexpr const char* name = "logsigmoid";
  static constexpr bool needs_f32 = true;
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return -math::softplus(-x);
  }
  template <class T>
  HD T grad(T x, T) const {
    return math::sigmoid(-x);
  }
};

struct Softsign {
  static constexpr const char* name = "softsign";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x / (1 + std::abs(x));
  }
  template <class T>
  HD T grad(T x, T) const {
    const T d = 1 + std::abs(x);
    return 1 / (d * d);
  }
};

// x limited to [a, b], for clamp, hardtanh and relu6. NaN stays NaN.
struct Clamp {
  static constexpr const char* name = "clamp";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{-0.7, 1.1};
  double low_limit, high_limit;
  HD explicit Clamp(Constants c) : low_limit(c.a), high_limit(c.b) {}
  template <class T>
  HD T operator()(T x) const {
    const T bounded = x < T(low_limit) ? T(low_limit) : x;
    return bounded > T(high_limit) ? T(high_limit) : bounded;
  }
  // At a limit, libraries define the derivative as 1 for clamp and 0 for relu6; this functor uses
  // 0, and tests do not draw limits.
  template <class T>
  HD T grad(T x, T) const {
    const T above = x > T(low_limit) ? T(1) : T(0);  // two selections, which vectorize
    return x < T(high_limit) ? above : T(0);
  }
};

// x relu6(x + 3) / 6 (Howard et al. 2019).
struct Hardswish {
  static constexpr const char* name = "hardswish";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? x : x * (x + 3) / 6;
  }
  template <class T>
  HD T grad(T x, T) const {
    return x <= -3 ? T(0) : x >= 3 ? T(1) : (2 * x + 3) / 6;
  }
};

struct Hardsigmoid {
  static constexpr const char* name = "hardsigmoid";
  static constexpr Reads reads = Reads::first;
  template <class T>
  HD T operator()(T x) const {
    return x <= -3 ? T(0) : x >= 3 ? T(1) : (x + 3) / 6;
  }
  template <class T>
  HD T grad(T x, T) const {
    return x > -3 && x < 3 ? T(1) / 6 : T(0);
  }
};

// x if |x| > a, else 0.
struct Hardshrink {
  static constexpr const char* name = "hardshrink";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{0.5, 0};
  double limit;
  HD explicit Hardshrink(Constants c) : limit(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return x <= T(limit) && x >= -T(limit) ? T(0) : x;
  }
  template <class T>
  HD T grad(T x, T) const {
    return x <= T(limit) && x >= -T(limit) ? T(0) : T(1);
  }
};

// x moved towards 0 by a; 0 if |x| <= a.
struct Softshrink {
  static constexpr const char* name = "softshrink";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{0.5, 0};
  double limit;
  HD explicit Softshrink(Constants c) : limit(c.a) {}
  template <class T>
  HD T operator()(T x) const {
    return x > T(limit) ? x - T(limit) : x < -T(limit) ? x + T(limit) : x != x ? x : T(0);
  }
  template <class T>
  HD T grad(T x, T) const {
    return x <= T(limit) && x >= -T(limit) ? T(0) : T(1);
  }
};

// x if x > a, else b.
struct Threshold {
  static constexpr const char* name = "threshold";
  static constexpr Reads reads = Reads::first;
  static constexpr Constants sample{0.3, -0.8};
  double limit, otherwise;
  HD explicit Threshold(Constants c) : limit(c.a), otherwise(c.b) {}
  template <class T>
  HD T operator()(T x) const {
    return x <= T(limit) ? T(otherwise) : x;
  }
  template <class T>
  HD T grad(T x, T) const {
    return x <= T(limit) ? T(0) : T(1);
  }
};

}  // namespace sotto::functors
