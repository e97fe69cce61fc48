// Elementwise operations on tape values. The formulas are in kernels/functors.h.
#pragma once

#include <numbers>

#include "sotto/autograd/tape.h"
#include "sotto/kernels/functors.h"

namespace sotto {

// `op` is a functor's index in UnaryFunctors or BinaryFunctors; binary operands broadcast.
Var unary(int op, const Var& x, Constants constants = {});
Var binary(int op, const Var& a, const Var& b);

template <class F>
Var apply(const Var& x, Constants constants = {}) {
  return unary(unary_index<F>, x, constants);
}

inline Var relu(const Var& x) { return apply<Relu>(x); }
inline Var relu6(const Var& x) { return apply<Clamp>(x, {0, 6}); }
inline Var leaky_relu(const Var& x, double slope = 0.01) { return apply<LeakyRelu>(x, {slope}); }
inline Var elu(const Var& x, double alpha = 1) { return apply<Elu>(x, {alpha}); }
inline Var selu(const Var& x) { return apply<Selu>(x); }
inline Var celu(const Var& x, double alpha = 1) { return apply<Celu>(x, {alpha}); }
inline Var gelu(const Var& x) { return apply<Gelu>(x); }
inline Var gelu_tanh(const Var& x) { return apply<GeluTanh>(x); }
inline Var sigmoid(const Var& x) { return apply<Sigmoid>(x); }
inline Var silu(const Var& x) { return apply<Silu>(x); }
inline Var tanh(const Var& x) { return apply<Tanh>(x); }
inline Var softplus(const Var& x, double beta = 1, double threshold = 20) {
  return apply<Softplus>(x, {beta, threshold});
}
inline Var mish(const Var& x) { return apply<Mish>(x); }
inline Var logsigmoid(const Var& x) { return apply<LogSigmoid>(x); }
inline Var softsign(const Var& x) { return apply<Softsign>(x); }
inline Var clamp(const Var& x, double low, double high) { return apply<Clamp>(x, {low, high}); }
inline Var hardtanh(const Var& x, double low = -1, double high = 1) { return clamp(x, low, high); }
inline Var hardswish(const Var& x) { return apply<Hardswish>(x); }
inline Var hardsigmoid(const Var& x) { return apply<Hardsigmoid>(x); }
inline Var hardshrink(const Var& x, double limit = 0.5) { return apply<Hardshrink>(x, {limit}); }
inline Var softshrink(const Var& x, double limit = 0.5) { return apply<Softshrink>(x, {limit}); }
// x > limit ? x : otherwise
inline Var threshold(const Var& x, double limit, double otherwise) {
  return apply<Threshold>(x, {limit, otherwise});
}
inline Var exp(const Var& x) { return apply<Exp>(x); }
inline Var expm1(const Var& x) { return apply<Expm1>(x); }
inline Var log(const Var& x) { return apply<Log>(x); }
inline Var log1p(const Var& x) { return apply<Log1p>(x); }
inline Var sqrt(const Var& x) { return apply<Sqrt>(x); }
inline Var rsqrt(const Var& x) { return apply<Rsqrt>(x); }
inline Var square(const Var& x) { return apply<Square>(x); }
inline Var sin(const Var& x) { return apply<Sin>(x); }
inline Var cos(const Var& x) { return apply<Cos>(x); }
inline Var tan(const Var& x) { return apply<Tan>(x); }
inline Var asin(const Var& x) { return apply<Asin>(x); }
inline Var acos(const Var& x) { return apply<Acos>(x); }
inline Var atan(const Var& x) { return apply<Atan>(x); }
inline Var sinh(const Var& x) { return apply<Sinh>(x); }
inline Var cosh(const Var& x) { return apply<Cosh>(x); }
inline Var asinh(const Var& x) { return apply<Asinh>(x); }
inline Var acosh(const Var& x) { return apply<Acosh>(x); }
inline Var atanh(const Var& x) { return apply<Atanh>(x); }
inline Var reciprocal(const Var& x) { return apply<Reciprocal>(x); }
inline Var erf(const Var& x) { return apply<Erf>(x); }
inline Var abs(const Var& x) { return apply<Abs>(x); }
inline Var pow(const Var& x, double exponent) { return apply<Pow>(x, {exponent}); }
// factor x + offset
inline Var affine(const Var& x, double factor, double offset) {
  return apply<Affine>(x, {factor, offset});
}
inline Var log2(const Var& x) { return affine(log(x), std::numbers::log2e, 0); }
inline Var log10(const Var& x) { return affine(log(x), std::numbers::log10e, 0); }
// scale sigmoid(temperature x) - offset: bounded activations that suit clipped gradients
// (Papernot et al. 2021). The defaults make it tanh.
inline Var tempered_sigmoid(const Var& x, double scale = 2, double temperature = 2,
                            double offset = 1) {
  return affine(sigmoid(affine(x, temperature, 0)), scale, -offset);
}

inline Var add(const Var& a, const Var& b) { return binary(binary_index<Add>, a, b); }
inline Var sub(const Var& a, const Var& b) { return binary(binary_index<Sub>, a, b); }
inline Var mul(const Var& a, const Var& b) { return binary(binary_index<Mul>, a, b); }
inline Var div(const Var& a, const Var& b) { return binary(binary_index<Div>, a, b); }
inline Var maximum(const Var& a, const Var& b) { return binary(binary_index<Maximum>, a, b); }
inline Var minimum(const Var& a, const Var& b) { return binary(binary_index<Minimum>, a, b); }
// a^b for positive a.
inline Var power(const Var& a, const Var& b) { return binary(binary_index<Power>, a, b); }

// 1 where it holds and 0 elsewhere, NaN where an operand is; conditions for where(), and without
// gradient.
inline Var greater(const Var& a, const Var& b) { return binary(binary_index<Greater>, a, b); }
inline Var greater_equal(const Var& a, const Var& b) {
  return binary(binary_index<GreaterEqual>, a, b);
}
inline Var less(const Var& a, const Var& b) { return greater(b, a); }
inline Var less_equal(const Var& a, const Var& b) { return greater_equal(b, a); }
inline Var equal(const Var& a, const Var& b) { return binary(binary_index<Equal>, a, b); }
inline Var not_equal(const Var& a, const Var& b) { return affine(equal(a, b), -1, 1); }

inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }

inline Var tanhshrink(const Var& x) { return x - tanh(x); }

// condition != 0 ? a : b, broadcasting. `condition` is a mask without gradient, aligned with a and
// b; its sample axis, if it has one, is where theirs is.
Var where(const Var& condition, const Var& a, const Var& b);

// Zeroes each element with probability `rate` and divides the rest by 1 - rate, while the tape is
// training (Srivastava et al. 2014). The mask is a function of the tape's key and the row in the
// logical batch. Throws unless 0 <= rate < 1.
Var dropout(const Var& x, double rate);

}  // namespace sotto
