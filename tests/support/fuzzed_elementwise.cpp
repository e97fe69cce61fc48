// The operations of random graphs that work element by element.
#include "autograd/ops.h"
#include "tests/support/fuzzed_graph.h"

namespace sotto {

namespace {

template <Var (*F)(Var)>
Var unary_of(GraphStep& s) {
  return F(s.x());
}
// For functions that are defined on a part of the line.
template <Var (*F)(Var)>
Var inner_of(GraphStep& s) {
  return F(s.within(s.x(), -0.9, 0.9));
}
template <Var (*F)(Var)>
Var positive_of(GraphStep& s) {
  return F(s.within(s.x(), 1.1, 3));
}
template <Var (*F)(Var, Var)>
Var binary_of(GraphStep& s) {
  const Var x = s.x();
  const Var y = s.like(x);
  return s.one_in(2) ? F(x, y) : F(y, x);
}
template <Var (*F)(const Var&, const Var&)>
Var compared(GraphStep& s) {
  const Var x = s.x();
  return F(x, s.like(x));
}
// A segment with a function of its input, a parameter and dropout.
Var segmented(GraphStep& s) {
  const Var x = s.x(), w = s.weight({});
  const auto run = [](const std::vector<Var>& v) {
    return std::vector<Var>{dropout(tanh(v[0] * v[1]), 0.2), v[0] + v[1]};
  };
  const std::vector<Var> y = segment(run, std::vector<Var>{x, w});
  return s.also(y[0]), y[1];
}

const FuzzedOp elementwise[] = {
    {"relu", unary_of<relu>},
    {"relu6", unary_of<relu6>},
    {"leaky_relu", [](GraphStep& s) { return leaky_relu(s.x()); }},
    {"elu", [](GraphStep& s) { return elu(s.x()); }},
    {"selu", unary_of<selu>},
    {"celu", [](GraphStep& s) { return celu(s.x(), 0.7); }},
    {"gelu", unary_of<gelu>},
    {"gelu_tanh", unary_of<gelu_tanh>},
    {"sigmoid", unary_of<sigmoid>},
    {"silu", unary_of<silu>},
    {"tanh", unary_of<tanh>},
    {"softplus", [](GraphStep& s) { return softplus(s.x(), 2); }},
    {"mish", unary_of<mish>},
    {"logsigmoid", unary_of<logsigmoid>},
    {"softsign", unary_of<softsign>},
    {"clamp", [](GraphStep& s) { return clamp(s.x(), -1, 0.5); }},
    {"hardtanh", [](GraphStep& s) { return hardtanh(s.x()); }},
    {"hardswish", unary_of<hardswish>},
    {"hardsigmoid", unary_of<hardsigmoid>},
    {"hardshrink", [](GraphStep& s) { return hardshrink(s.x()); }},
    {"softshrink", [](GraphStep& s) { return softshrink(s.x()); }},
    {"threshold", [](GraphStep& s) { return threshold(s.x(), 0.3, -1); }},
    {"exp", [](GraphStep& s) { return exp(s.within(s.x(), -2, 2)); }},
    {"expm1", inner_of<expm1>},
    {"log", positive_of<log>},
    {"log1p", positive_of<log1p>},
    {"sqrt", positive_of<sqrt>},
    {"rsqrt", positive_of<rsqrt>},
    {"square", unary_of<square>},
    {"sin", unary_of<sin>},
    {"cos", unary_of<cos>},
    {"tan", inner_of<tan>},
    {"asin", inner_of<asin>},
    {"acos", inner_of<acos>},
    {"atan", unary_of<atan>},
    {"sinh", inner_of<sinh>},
    {"cosh", inner_of<cosh>},
    {"asinh", unary_of<asinh>},
    {"acosh", positive_of<acosh>},
    {"atanh", inner_of<atanh>},
    {"reciprocal", positive_of<reciprocal>},
    {"erf", unary_of<erf>},
    {"abs", unary_of<abs>},
    {"pow", [](GraphStep& s) { return pow(s.within(s.x(), 0.5, 2), 1.5); }},
    {"affine", [](GraphStep& s) { return affine(s.x(), -2, 0.5); }},
    {"log2", [](GraphStep& s) { return log2(s.within(s.x(), 1, 3)); }},
    {"log10", [](GraphStep& s) { return log10(s.within(s.x(), 1, 3)); }},
    {"tempered_sigmoid", [](GraphStep& s) { return tempered_sigmoid(s.x()); }},
    {"tanhshrink", unary_of<tanhshrink>},
    {"add", binary_of<add>},
    {"sub", binary_of<sub>},
    {"mul", binary_of<mul>},
    {"div", binary_of<div>},
    {"maximum", binary_of<maximum>},
    {"minimum", binary_of<minimum>},
    {"power",
     [](GraphStep& s) {
       const Var x = s.x();
       return power(s.within(x, 0.5, 2), s.within(s.like(x), -2, 2));
     }},
    {"greater", binary_of<greater>},
    {"greater_equal", binary_of<greater_equal>},
    {"less", compared<less>},
    {"less_equal", compared<less_equal>},
    {"equal", binary_of<equal>},
    {"not_equal", compared<not_equal>},
    {"where",
     [](GraphStep& s) {
       const Var x = s.x();
       const Var condition = greater(s.like(x), s.like(x));
       return where(condition, x, s.like(x));
     }},
    {"masked_fill",
     [](GraphStep& s) {
       const Var x = s.x();
       return masked_fill(x, less(s.like(x), x), -3);
     }},
    {"detach", [](GraphStep& s) { return detach(s.x()); }},
    {"dropout", [](GraphStep& s) { return dropout(s.x(), 0.3); }},
    {"cast",
     [](GraphStep& s) {
       const Var x = s.x();
       return cast(cast(x, s.one_in(2) ? Dtype::f64 : Dtype::bf16), x.dtype());
     }},
    {"to_f32", [](GraphStep& s) { return to_f32(s.x()); }},
    {"segment", segmented}};

}  // namespace

std::span<const FuzzedOp> fuzzed_elementwise() { return elementwise; }

}  // namespace sotto
