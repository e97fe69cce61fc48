// Elementwise operations on tape values. The formulas are in kernels/functors/functors.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/primitive_arguments.h"

namespace sotto {

// Applies functor number `op` of UnaryFunctors or BinaryFunctors; binary operands broadcast. The
// result is stored in the memory of an operand that is a temporary (or moved) and that nothing else
// references, backward included: relu(a + b) needs one tensor instead of two.
Var unary(int op, Var x, Constants constants = {});
Var binary(int op, Var a, Var b);

Var relu(Var x);
Var relu6(Var x);
Var leaky_relu(Var x, double slope = 0.01);
Var elu(Var x, double alpha = 1);
Var selu(Var x);
Var celu(Var x, double alpha = 1);
Var gelu(Var x);
Var gelu_tanh(Var x);
Var sigmoid(Var x);
Var silu(Var x);
Var tanh(Var x);
Var softplus(Var x, double beta = 1, double threshold = 20);
Var mish(Var x);
Var logsigmoid(Var x);
Var softsign(Var x);
Var clamp(Var x, double low, double high);
Var hardtanh(const Var& x, double low = -1, double high = 1);
Var hardswish(Var x);
Var hardsigmoid(Var x);
Var hardshrink(Var x, double limit = 0.5);
Var softshrink(Var x, double limit = 0.5);
// x if x > limit, else `otherwise`.
Var threshold(Var x, double limit, double otherwise);
Var exp(Var x);
Var expm1(Var x);
Var log(Var x);
Var log1p(Var x);
Var sqrt(Var x);
Var rsqrt(Var x);
Var square(Var x);
Var sin(Var x);
Var cos(Var x);
Var tan(Var x);
Var asin(Var x);
Var acos(Var x);
Var atan(Var x);
Var sinh(Var x);
Var cosh(Var x);
Var asinh(Var x);
Var acosh(Var x);
Var atanh(Var x);
Var reciprocal(Var x);
Var erf(Var x);
Var abs(Var x);
Var pow(Var x, double exponent);
// factor x + offset
Var affine(Var x, double factor, double offset);
Var log2(const Var& x);
Var log10(const Var& x);
// scale sigmoid(temperature x) - offset: a bounded activation that suits clipped gradients
// (Papernot et al. 2021). The defaults make it tanh.
Var tempered_sigmoid(const Var& x, double scale = 2, double temperature = 2, double offset = 1);

Var add(Var a, Var b);
Var sub(Var a, Var b);
Var mul(Var a, Var b);
Var div(Var a, Var b);
Var maximum(Var a, Var b);
Var minimum(Var a, Var b);
// a^b for positive a.
Var power(Var a, Var b);

// 1 where the comparison holds, 0 elsewhere, NaN if an operand is NaN; without gradient. Use them
// as conditions of where().
Var greater(Var a, Var b);
Var greater_equal(Var a, Var b);
Var less(const Var& a, const Var& b);
Var less_equal(const Var& a, const Var& b);
Var equal(Var a, Var b);
Var not_equal(const Var& a, const Var& b);

Var operator+(Var a, Var b);
Var operator-(Var a, Var b);
Var operator*(Var a, Var b);
Var operator/(Var a, Var b);

// With numbers, which are the same for all samples: 2 * x + 1. x / c is x times 1 / c.
Var operator-(Var x);
Var operator+(Var x, double c);
Var operator+(double c, Var x);
Var operator-(Var x, double c);
Var operator-(double c, Var x);
Var operator*(Var x, double c);
Var operator*(double c, Var x);
Var operator/(Var x, double c);
Var operator/(double c, Var x);

Var tanhshrink(Var x);

// condition != 0 ? a : b, broadcasting. `condition` is a mask without gradient; if it has a sample
// axis, that axis must be the one of a and b.
Var where(const Var& condition, const Var& a, const Var& b);

// x as a constant, which passes no gradient on.
Var detach(const Var& x);

// Sets each element to zero with probability `rate` and divides the others by 1 - rate, while the
// tape is training (Srivastava et al. 2014). The mask is a function of the tape's key and of the
// row in the logical batch. Throws unless 0 <= rate < 1.
Var dropout(const Var& x, double rate);

}  // namespace sotto
