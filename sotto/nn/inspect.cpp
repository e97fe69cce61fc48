#include "sotto/nn/inspect.h"

#include <cxxabi.h>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "sotto/kernels/compute.h"

namespace sotto::nn {

namespace {

// The class without namespaces: "Linear", "Conv<2>".
std::string kind_of(const Module& module) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> full(
      abi::__cxa_demangle(typeid(module).name(), nullptr, nullptr, &status), std::free);
  std::string kind = status == 0 ? full.get() : typeid(module).name();
  for (const char* prefix : {"sotto::nn::", "sotto::"}) {
    for (auto at = kind.find(prefix); at != std::string::npos; at = kind.find(prefix))
      kind.erase(at, std::string(prefix).size());
  }
  return kind;
}

// 1,234,567
std::string grouped(std::int64_t count) {
  if (count < 1000) return fmt::format("{}", count);
  return fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

void describe(const std::string& name, Module& module, int depth, std::string& text) {
  std::string own;
  std::int64_t count = 0;
  bool frozen = true;
  std::vector<std::pair<std::string, Module*>> children;
  module.visit(Visitor(
      [&](const std::string& parameter, Parameter& p) {
        own += fmt::format("{}{} {}", own.empty() ? "" : ", ", parameter, p.value.shape());
        count += p.value.numel();
        frozen = frozen && !p.trainable;
      },
      [&](const std::string& child, Module& m) { children.emplace_back(child, &m); }));
  text +=
      fmt::format("{:{}}{}{}{}", "", 2 * depth, name, name.empty() ? "" : ": ", kind_of(module));
  if (count > 0) text += fmt::format("  {}  ({}{})", own, grouped(count), frozen ? ", frozen" : "");
  text += "\n";
  for (const auto& [child, m] : children) describe(child, *m, depth + 1, text);
}

}  // namespace

std::string to_string(Module& module) {
  std::string text;
  describe("", module, 0, text);
  std::int64_t trained = 0;
  for (const Parameter* p : module.parameters()) trained += p->trainable ? p->value.numel() : 0;
  return text + fmt::format("{} parameters, {} of them trained\n",
                            grouped(module.parameter_count()), grouped(trained));
}

std::string summary(Sequential& model, const Tensor& input) {
  std::string text = fmt::format("{:<4} {:<24} {:<24} {:>14} {:>14}\n", "", "layer", "output",
                                 "bytes", "parameters");
  Tape tape({.training = false});
  Var x = tape.input(input);
  std::size_t bytes = 0;
  for (int i = 0; i < model.size(); ++i) {
    x = model[i](x);
    const std::size_t own = static_cast<std::size_t>(x.value().numel()) * size_of(x.dtype());
    bytes += own;
    text += fmt::format("{:<4} {:<24} {:<24} {:>14} {:>14}\n", i, kind_of(model[i]),
                        fmt::format("{}", x.shape()), grouped(static_cast<std::int64_t>(own)),
                        grouped(model[i].parameter_count()));
  }
  return text + fmt::format("{:<4} {:<24} {:<24} {:>14} {:>14}\n", "", "all", "",
                            grouped(static_cast<std::int64_t>(bytes)),
                            grouped(model.parameter_count()));
}

GroupNorm group_norm_for_batch_norm(const Tensor& weight, const Tensor& bias, std::int64_t groups) {
  check(weight.rank() == 1 && weight.shape() == bias.shape(),
        "group_norm_for_batch_norm: weight {} and bias {}", weight.shape(), bias.shape());
  GroupNorm layer(groups, weight.size(0));
  layer.weight->value = clone(weight);
  layer.bias->value = clone(bias);
  return layer;
}

}  // namespace sotto::nn
