// Operators of elementwise operations. The formulas are in kernels/functors.
#include <cmath>
#include <numbers>

#include "nn/onnx/operators.h"

namespace sotto::nn::onnx {

namespace {

// An operation that has an operator of its own.
Converter same(const char* op) {
  return [op](const Call& call) {
    Names inputs;
    for (std::size_t i = 0; i < call.inputs(); ++i) inputs.push_back(call.in(i));
    return call.graph.add(op, inputs);
  };
}

// An operator with attributes from the operation's constants.
Converter with(const char* op, NodeAttributes (*attributes)(double a, double b)) {
  return [op, attributes](const Call& call) {
    return call.graph.add(op, {call.in(0)}, attributes(call.number("a"), call.number("b")));
  };
}

// A formula of x and the operation's constants.
struct Formula {
  Graph& graph;
  std::string x;
  double a, b;

  std::string mul(const std::string& u, const std::string& v) const {
    return graph.add("Mul", {u, v});
  }
  std::string add(const std::string& u, const std::string& v) const {
    return graph.add("Add", {u, v});
  }
  std::string times(const std::string& u, double c) const {
    return c == 1 ? u : mul(u, graph.number(c));
  }
  std::string plus(const std::string& u, double c) const {
    return c == 0 ? u : add(u, graph.number(c));
  }
  std::string of(const char* op, const std::string& u) const { return graph.add(op, {u}); }
};

Converter formula(std::string (*f)(const Formula& f)) {
  return [f](const Call& call) {
    return f({call.graph, call.in(0), call.number("a"), call.number("b")});
  };
}

std::string gelu(const Formula& f) {
  const std::string erf =
      f.of("Erf", f.graph.add("Div", {f.x, f.graph.number(std::numbers::sqrt2)}));
  return f.times(f.mul(f.x, f.plus(erf, 1)), 0.5);
}

std::string gelu_tanh(const Formula& f) {
  constexpr double cubic = 0.044715;  // functors::GeluTanh
  const std::string cube = f.mul(f.x, f.mul(f.x, f.x)), sum = f.add(f.x, f.times(cube, cubic));
  const std::string inner =
      f.of("Tanh", f.times(sum, std::numbers::sqrt2 * std::numbers::inv_sqrtpi));
  return f.times(f.mul(f.x, f.plus(inner, 1)), 0.5);
}

std::string softplus(const Formula& f) {
  const std::string z = f.times(f.x, f.a);
  return f.graph.add("Where", {f.graph.add("Greater", {z, f.graph.number(f.b)}), f.x,
                               f.times(f.of("Softplus", z), 1 / f.a)});
}

std::string threshold(const Formula& f) {
  const std::string small = f.graph.add("LessOrEqual", {f.x, f.graph.number(f.a)});
  return f.graph.add("Where", {small, f.graph.number(f.b), f.x});
}

// 1 or 0 as f32.
Converter comparison(const char* op) {
  return [op](const Call& call) {
    return as_type(call.graph, call.graph.add(op, {call.in(0), call.in(1)}), Dtype::f32);
  };
}

std::string where(const Call& call) {
  return call.graph.add("Where",
                        {as_type(call.graph, call.in(0), Dtype::boolean), call.in(1), call.in(2)});
}

void add_named(Operators& all) {
  for (const auto& [ours, theirs] : std::initializer_list<std::pair<const char*, const char*>>{
           {"relu", "Relu"},   {"selu", "Selu"},         {"sigmoid", "Sigmoid"},
           {"tanh", "Tanh"},   {"softsign", "Softsign"}, {"hardswish", "HardSwish"},
           {"exp", "Exp"},     {"log", "Log"},           {"sqrt", "Sqrt"},
           {"sin", "Sin"},     {"cos", "Cos"},           {"tan", "Tan"},
           {"asin", "Asin"},   {"acos", "Acos"},         {"atan", "Atan"},
           {"sinh", "Sinh"},   {"cosh", "Cosh"},         {"asinh", "Asinh"},
           {"acosh", "Acosh"}, {"atanh", "Atanh"},       {"reciprocal", "Reciprocal"},
           {"erf", "Erf"},     {"abs", "Abs"},           {"add", "Add"},
           {"sub", "Sub"},     {"mul", "Mul"},           {"div", "Div"},
           {"maximum", "Max"}, {"minimum", "Min"},       {"power", "Pow"}})
    all[ours] = same(theirs);
  const auto slope = [](double a, double) { return NodeAttributes{{"alpha", a}}; };
  for (const auto& [ours, theirs] : std::initializer_list<std::pair<const char*, const char*>>{
           {"leaky_relu", "LeakyRelu"}, {"elu", "Elu"}, {"celu", "Celu"}})
    all[ours] = with(theirs, slope);
  all["hardsigmoid"] = with("HardSigmoid", [](double, double) {
    return NodeAttributes{{"alpha", 1.0 / 6}, {"beta", 0.5}};
  });
  all["hardshrink"] = with("Shrink", [](double a, double) {
    return NodeAttributes{{"lambd", a}, {"bias", 0.0}};
  });
  all["softshrink"] = with("Shrink", [](double a, double) {
    return NodeAttributes{{"lambd", a}, {"bias", a}};
  });
}

void add_formulas(Operators& all) {
  all["gelu"] = formula(gelu);
  all["gelu_tanh"] = formula(gelu_tanh);
  all["softplus"] = formula(softplus);
  all["threshold"] = formula(threshold);
  all["silu"] = formula([](const Formula& f) { return f.mul(f.x, f.of("Sigmoid", f.x)); });
  all["mish"] =
      formula([](const Formula& f) { return f.mul(f.x, f.of("Tanh", f.of("Softplus", f.x))); });
  all["logsigmoid"] =
      formula([](const Formula& f) { return f.of("Neg", f.of("Softplus", f.of("Neg", f.x))); });
  all["clamp"] = formula([](const Formula& f) {
    return f.graph.add("Clip", {f.x, f.graph.number(f.a), f.graph.number(f.b)});
  });
  all["expm1"] = formula([](const Formula& f) { return f.plus(f.of("Exp", f.x), -1); });
  all["log1p"] = formula([](const Formula& f) { return f.of("Log", f.plus(f.x, 1)); });
  all["rsqrt"] = formula([](const Formula& f) { return f.of("Reciprocal", f.of("Sqrt", f.x)); });
  all["square"] = formula([](const Formula& f) { return f.mul(f.x, f.x); });
  all["pow"] = formula([](const Formula& f) {
    return f.graph.add("Pow", {f.x, f.graph.number(f.a)});
  });
  all["affine"] = formula([](const Formula& f) { return f.plus(f.times(f.x, f.a), f.b); });
}

}  // namespace

void add_elementwise(Operators& all) {
  add_named(all);
  add_formulas(all);
  all["greater"] = comparison("Greater");
  all["greater_equal"] = comparison("GreaterOrEqual");
  all["equal"] = comparison("Equal");
  all["where"] = where;
}

}  // namespace sotto::nn::onnx
