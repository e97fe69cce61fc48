// Elementwise operations on tape values. The formulas are in kernels/functors/functors.h.
#pragma once

#include <numbers>
#include <utility>

#include "autograd/tape.h"
#include "kernels/functors/functors.h"

namespace sotto {

// Applies functor number `op` of UnaryFunctors or BinaryFunctors; binary operands broadcast. The
// result is stored in the memory of an operand that is a temporary (or moved) and that nothing else
// references, backward included: relu(a + b) needs one tensor instead of two.
Var unary(int op, Var x, Constants constants = {});
Var binary(int op, Var a, Var b);

template <class F>
Var apply(Var x, Constants constants = {}) {
  return unary(unary_index<F>, std::move(x), constants);
}

inline Var relu(Var x) { return apply<functors::Relu>(std::move(x)); }
inline Var relu6(Var x) { return apply<functors::Clamp>(std::move(x), {0, 6}); }
inline Var leaky_relu(Var x, double slope = 0.01) {
  return apply<functors::LeakyRelu>(std::move(x), {slope});
}
inline Var elu(Var x, double alpha = 1) { return apply<functors::Elu>(std::move(x), {alpha}); }
inline Var selu(Var x) { return apply<functors::Selu>(std::move(x)); }
inline Var celu(Var x, double alpha = 1) { return apply<functors::Celu>(std::move(x), {alpha}); }
inline Var gelu(Var x) { return apply<functors::Gelu>(std::move(x)); }
inline Var gelu_tanh(Var x) { return apply<functors::GeluTanh>(std::move(x)); }
inline Var sigmoid(Var x) { return apply<functors::Sigmoid>(std::move(x)); }
inline Var silu(Var x) { return apply<functors::Silu>(std::move(x)); }
inline Var tanh(Var x) { return apply<functors::Tanh>(std::move(x)); }
inline Var softplus(Var x, double beta = 1, double threshold = 20) {
  return apply<functors::Softplus>(std::move(x), {beta, threshold});
}
inline Var mish(Var x) { return apply<functors::Mish>(std::move(x)); }
inline Var logsigmoid(Var x) { return apply<functors::LogSigmoid>(std::move(x)); }
inline Var softsign(Var x) { return apply<functors::Softsign>(std::move(x)); }
inline Var clamp(Var x, double low, double high) {
  return apply<functors::Clamp>(std::move(x), {low, high});
}
inline Var hardtanh(const Var& x, double low = -1, double high = 1) { return clamp(x, low, high); }
inline Var hardswish(Var x) { return apply<functors::Hardswish>(std::move(x)); }
inline Var hardsigmoid(Var x) { return apply<functors::Hardsigmoid>(std::move(x)); }
inline Var hardshrink(Var x, double limit = 0.5) {
  return apply<functors::Hardshrink>(std::move(x), {limit});
}
inline Var softshrink(Var x, double limit = 0.5) {
  return apply<functors::Softshrink>(std::move(x), {limit});
}
// x if x > limit, else `otherwise`.
inline Var threshold(Var x, double limit, double otherwise) {
  return apply<functors::Threshold>(std::move(x), {limit, otherwise});
}
inline Var exp(Var x) { return apply<functors::Exp>(std::move(x)); }
inline Var expm1(Var x) { return apply<functors::Expm1>(std::move(x)); }
inline Var log(Var x) { return apply<functors::Log>(std::move(x)); }
inline Var log1p(Var x) { return apply<functors::Log1p>(std::move(x)); }
inline Var sqrt(Var x) { return apply<functors::Sqrt>(std::move(x)); }
inline Var rsqrt(Var x) { return apply<functors::Rsqrt>(std::move(x)); }
inline Var square(Var x) { return apply<functors::Square>(std::move(x)); }
inline Var sin(Var x) { return apply<functors::Sin>(std::move(x)); }
inline Var cos(Var x) { return apply<functors::Cos>(std::move(x)); }
inline Var tan(Var x) { return apply<functors::Tan>(std::move(x)); }
inline Var asin(Var x) { return apply<functors::Asin>(std::move(x)); }
inline Var acos(Var x) { return apply<functors::Acos>(std::move(x)); }
inline Var atan(Var x) { return apply<functors::Atan>(std::move(x)); }
inline Var sinh(Var x) { return apply<functors::Sinh>(std::move(x)); }
inline Var cosh(Var x) { return apply<functors::Cosh>(std::move(x)); }
inline Var asinh(Var x) { return apply<functors::Asinh>(std::move(x)); }
inline Var acosh(Var x) { return apply<functors::Acosh>(std::move(x)); }
inline Var atanh(Var x) { return apply<functors::Atanh>(std::move(x)); }
inline Var reciprocal(Var x) { return apply<functors::Reciprocal>(std::move(x)); }
inline Var erf(Var x) { return apply<functors::Erf>(std::move(x)); }
inline Var abs(Var x) { return apply<functors::Abs>(std::move(x)); }
inline Var pow(Var x, double exponent) { return apply<functors::Pow>(std::move(x), {exponent}); }
// factor x + offset
inline Var affine(Var x, double factor, double offset) {
  return apply<functors::Affine>(std::move(x), {factor, offset});
}
inline Var log2(const Var& x) { return affine(log(x), std::numbers::log2e, 0); }
inline Var log10(const Var& x) { return affine(log(x), std::numbers::log10e, 0); }
// scale sigmoid(temperature x) - offset: a bounded activation that suits clipped gradients
// (Papernot et al. 2021). The defaults make it tanh.
inline Var tempered_sigmoid(const Var& x, double scale = 2, double temperature = 2,
                            double offset = 1) {
  return affine(sigmoid(affine(x, temperature, 0)), scale, -offset);
}

inline Var add(Var a, Var b) {
  return binary(binary_index<functors::Add>, std::move(a), std::move(b));
}
inline Var sub(Var a, Var b) {
  return binary(binary_index<functors::Sub>, std::move(a), std::move(b));
}
inline Var mul(Var a, Var b) {
  return binary(binary_index<functors::Mul>, std::move(a), std::move(b));
}
inline Var div(Var a, Var b) {
  return binary(binary_index<functors::Div>, std::move(a), std::move(b));
}
inline Var maximum(Var a, Var b) {
  return binary(binary_index<functors::Maximum>, std::move(a), std::move(b));
}
inline Var minimum(Var a, Var b) {
  return binary(binary_index<functors::Minimum>, std::move(a), std::move(b));
}
// a^b for positive a.
inline Var power(Var a, Var b) {
  return binary(binary_index<functors::Power>, std::move(a), std::move(b));
}

// 1 where the comparison holds, 0 elsewhere, NaN if an operand is NaN; without gradient. Use them
// as conditions of where().
inline Var greater(Var a, Var b) {
  return binary(binary_index<functors::Greater>, std::move(a), std::move(b));
}
inline Var greater_equal(Var a, Var b) {
  return binary(binary_index<functors::GreaterEqual>, std::move(a), std::move(b));
}
inline Var less(const Var& a, const Var& b) { return greater(b, a); }
inline Var less_equal(const Var& a, const Var& b) { return greater_equal(b, a); }
inline Var equal(Var a, Var b) {
  return binary(binary_index<functors::Equal>, std::move(a), std::move(b));
}
inline Var not_equal(const Var& a, const Var& b) { return affine(equal(a, b), -1, 1); }

inline Var operator+(Var a, Var b) { return add(std::move(a), std::move(b)); }
inline Var operator-(Var a, Var b) { return sub(std::move(a), std::move(b)); }
inline Var operator*(Var a, Var b) { return mul(std::move(a), std::move(b)); }
inline Var operator/(Var a, Var b) { return div(std::move(a), std::move(b)); }

// With numbers, which are the same for all samples: 2 * x + 1. x / c is x times 1 / c.
inline Var operator-(Var x) { return affine(std::move(x), -1, 0); }
inline Var operator+(Var x, double c) { return affine(std::move(x), 1, c); }
inline Var operator+(double c, Var x) { return affine(std::move(x), 1, c); }
inline Var operator-(Var x, double c) { return affine(std::move(x), 1, -c); }
inline Var operator-(double c, Var x) { return affine(std::move(x), -1, c); }
inline Var operator*(Var x, double c) { return affine(std::move(x), c, 0); }
inline Var operator*(double c, Var x) { return affine(std::move(x), c, 0); }
inline Var operator/(Var x, double c) { return affine(std::move(x), 1 / c, 0); }
inline Var operator/(double c, Var x) { return affine(reciprocal(std::move(x)), c, 0); }

inline Var tanhshrink(const Var& x) { return x - tanh(x); }

// condition != 0 ? a : b, broadcasting. `condition` is a mask without gradient; if it has a sample
// axis, that axis must be the one of a and b.
Var where(const Var& condition, const Var& a, const Var& b);

// Sets each element to zero with probability `rate` and divides the others by 1 - rate, while the
// tape is training (Srivastava et al. 2014). The mask is a function of the tape's key and of the
// row in the logical batch. Throws unless 0 <= rate < 1.
Var dropout(const Var& x, double rate);

}  // namespace sotto
