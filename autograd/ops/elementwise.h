// Elementwise operations on tape values. The formulas are in kernels/functors/functors.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/primitive_arguments.h"

namespace sotto {

// Applies functor number `op` of UnaryFunctors or BinaryFunctors; binary operands broadcast. The
// result is stored in the memory of an operand that is a temporary (or moved) and has no other
// reference, not even for backward: relu(a + b) needs one tensor instead of two.
Var unary(int op, Var x, Constants constants = {});
Var binary(int op, Var a, Var b);  // two operands, which broadcast

Var relu(Var x);                             // max(0, x)
Var relu6(Var x);                            // min(max(0, x), 6)
Var leaky_relu(Var x, double slope = 0.01);  // x if x > 0, else slope x
Var elu(Var x, double alpha = 1);            // x if x > 0, else alpha (e^x - 1)
Var selu(Var x);                             // scaled elu (Klambauer et al. 2017)
Var celu(Var x, double alpha = 1);           // elu with alpha (e^{x / alpha} - 1)
Var gelu(Var x);                             // x Phi(x) (Hendrycks and Gimpel 2016)
Var gelu_tanh(Var x);                        // gelu, approximated by tanh
Var sigmoid(Var x);                          // 1 / (1 + e^-x)
Var silu(Var x);                             // x sigmoid(x)
Var tanh(Var x);                             // (e^x - e^-x) / (e^x + e^-x)
// Ln(1 + e^{beta x}) / beta; x if beta x > threshold.
Var softplus(Var x, double beta = 1, double threshold = 20);
Var mish(Var x);                                               // x tanh(ln(1 + e^x))
Var logsigmoid(Var x);                                         // ln sigmoid(x)
Var softsign(Var x);                                           // x / (1 + |x|)
Var clamp(Var x, double low, double high);                     // x limited to [low, high]
Var hardtanh(const Var& x, double low = -1, double high = 1);  // clamp(x, low, high)
Var hardswish(Var x);                                          // x relu6(x + 3) / 6
Var hardsigmoid(Var x);                                        // relu6(x + 3) / 6
Var hardshrink(Var x, double limit = 0.5);                     // x if |x| > limit, else 0
Var softshrink(Var x, double limit = 0.5);  // x moved towards 0 by limit, 0 within it
// x if x > limit, else `otherwise`.
Var threshold(Var x, double limit, double otherwise);
Var exp(Var x);                   // e^x
Var expm1(Var x);                 // e^x - 1
Var log(Var x);                   // ln x
Var log1p(Var x);                 // ln(1 + x)
Var sqrt(Var x);                  // x^(1/2)
Var rsqrt(Var x);                 // x^(-1/2)
Var square(Var x);                // x^2
Var sin(Var x);                   // in radians
Var cos(Var x);                   // in radians
Var tan(Var x);                   // in radians
Var asin(Var x);                  // in [-pi/2, pi/2]
Var acos(Var x);                  // in [0, pi]
Var atan(Var x);                  // in (-pi/2, pi/2)
Var sinh(Var x);                  // (e^x - e^-x) / 2
Var cosh(Var x);                  // (e^x + e^-x) / 2
Var asinh(Var x);                 // the inverse of sinh
Var acosh(Var x);                 // the inverse of cosh, for x >= 1
Var atanh(Var x);                 // the inverse of tanh, for |x| < 1
Var reciprocal(Var x);            // 1 / x
Var erf(Var x);                   // the error function
Var abs(Var x);                   // |x|
Var pow(Var x, double exponent);  // x^exponent
// factor x + offset
Var affine(Var x, double factor, double offset);
Var log2(const Var& x);   // ln x / ln 2
Var log10(const Var& x);  // ln x / ln 10
// scale sigmoid(temperature x) - offset: a bounded activation that suits clipped gradients
// (Papernot et al. 2021). The defaults make it tanh.
Var tempered_sigmoid(const Var& x, double scale = 2, double temperature = 2, double offset = 1);

Var add(Var a, Var b);      // a + b, broadcasting
Var sub(Var a, Var b);      // a - b
Var mul(Var a, Var b);      // a b
Var div(Var a, Var b);      // a / b
Var maximum(Var a, Var b);  // the larger of both
Var minimum(Var a, Var b);  // the smaller of both
// a^b for positive a.
Var power(Var a, Var b);

// 1 where the comparison holds, 0 elsewhere, NaN if an operand is NaN; without gradient. Use them
// as conditions of where().
Var greater(Var a, Var b);
Var greater_equal(Var a, Var b);             // a >= b
Var less(const Var& a, const Var& b);        // a < b
Var less_equal(const Var& a, const Var& b);  // a <= b
Var equal(Var a, Var b);                     // a = b
Var not_equal(const Var& a, const Var& b);   // a != b

Var operator+(Var a, Var b);  // add(a, b)
Var operator-(Var a, Var b);  // sub(a, b)
Var operator*(Var a, Var b);  // mul(a, b)
Var operator/(Var a, Var b);  // div(a, b)

// With numbers, as in 2 * x + 1. x / c is x times 1 / c.
Var operator-(Var x);
Var operator+(Var x, double c);  // x + c
Var operator+(double c, Var x);  // c + x
Var operator-(Var x, double c);  // x - c
Var operator-(double c, Var x);  // c - x
Var operator*(Var x, double c);  // c x
Var operator*(double c, Var x);  // c x
Var operator/(Var x, double c);  // x / c
Var operator/(double c, Var x);  // c / x

Var tanhshrink(Var x);  // x - tanh(x)

// condition != 0 ? a : b, broadcasting. `condition` is a mask without gradient; if it has a sample
// axis, that axis must be the one of a and b.
Var where(const Var& condition, const Var& a, const Var& b);

// x as a constant, which passes no gradient on.
Var detach(const Var& x);

// While the tape is training: sets each element to zero with probability `rate`, else divides it by
// 1 - rate (Srivastava et al. 2014). The mask is a function of the tape's key and of the row in the
// logical batch. Throws unless 0 <= rate < 1.
Var dropout(const Var& x, double rate);

}  // namespace sotto
