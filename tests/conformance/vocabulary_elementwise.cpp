#include <limits>

#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

constexpr double unbounded = std::numeric_limits<double>::infinity();

template <Var (*f)(Var)>
Function plain() {
  return single([](const Call& call) { return f(call["x"]); });
}

template <Var (*f)(Var, Var)>
Function pair() {
  return single([](const Call& call) { return f(call["a"], call["b"]); });
}

Var product(const Call& call) { return matmul(call["a"], call["b"]); }

Var any_gelu(const Call& call) {
  const auto approximate = call.arg<std::string>("approximate");
  if (approximate == "none") return gelu(call["x"]);
  if (approximate == "tanh") return gelu_tanh(call["x"]);
  throw Malformed("approximate is " + approximate);
}

void add_plain(Vocabulary& vocabulary) {
  vocabulary.insert({{"relu", plain<relu>()},
                     {"relu6", plain<relu6>()},
                     {"selu", plain<selu>()},
                     {"silu", plain<silu>()},
                     {"mish", plain<mish>()},
                     {"hardswish", plain<hardswish>()},
                     {"hardsigmoid", plain<hardsigmoid>()},
                     {"sigmoid", plain<sigmoid>()},
                     {"tanh", plain<tanh>()},
                     {"logsigmoid", plain<logsigmoid>()},
                     {"softsign", plain<softsign>()},
                     {"exp", plain<exp>()},
                     {"expm1", plain<expm1>()},
                     {"log", plain<log>()},
                     {"log1p", plain<log1p>()},
                     {"sqrt", plain<sqrt>()},
                     {"rsqrt", plain<rsqrt>()},
                     {"square", plain<square>()},
                     {"sin", plain<sin>()},
                     {"cos", plain<cos>()},
                     {"reciprocal", plain<reciprocal>()},
                     {"erf", plain<erf>()},
                     {"abs", plain<abs>()}});
  vocabulary["detach"] = single([](const Call& call) { return detach(call["x"]); });
}

void add_with_args(Vocabulary& vocabulary) {
  vocabulary["leaky_relu"] = single(
      [](const Call& call) { return leaky_relu(call["x"], call.arg<double>("negative_slope")); });
  vocabulary["elu"] =
      single([](const Call& call) { return elu(call["x"], call.arg<double>("alpha")); });
  vocabulary["celu"] =
      single([](const Call& call) { return celu(call["x"], call.arg<double>("alpha")); });
  vocabulary["gelu"] = single(any_gelu);
  vocabulary["softplus"] = single([](const Call& call) {
    return softplus(call["x"], call.arg<double>("beta"), call.arg<double>("threshold"));
  });
  vocabulary["hardtanh"] = single([](const Call& call) {
    return hardtanh(call["x"], call.arg<double>("min_val"), call.arg<double>("max_val"));
  });
  vocabulary["clamp"] = single([](const Call& call) {
    return clamp(call["x"], call.number("min", -unbounded), call.number("max", unbounded));
  });
  vocabulary["neg"] = single([](const Call& call) { return affine(call["x"], -1, 0); });
  vocabulary["pow"] =
      single([](const Call& call) { return pow(call["x"], call.arg<double>("exponent")); });
  vocabulary["affine"] = single([](const Call& call) {
    return affine(call["x"], call.arg<double>("mul"), call.arg<double>("add"));
  });
}

}  // namespace

void add_elementwise(Vocabulary& vocabulary) {
  add_plain(vocabulary);
  add_with_args(vocabulary);
  vocabulary.insert({{"add", pair<add>()},
                     {"sub", pair<sub>()},
                     {"mul", pair<mul>()},
                     {"div", pair<div>()},
                     {"maximum", pair<maximum>()},
                     {"minimum", pair<minimum>()},
                     {"matmul", single(product)},
                     {"bmm", single(product)}});
}

}  // namespace sotto::conformance
