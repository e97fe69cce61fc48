#include "nn/model_summary.h"

#include <cxxabi.h>
#include <cstdlib>
#include <map>
#include <memory>
#include <typeinfo>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

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

namespace {

// 1,234,567
std::string grouped(std::int64_t count) {
  if (count < 1000) return fmt::format("{}", count);
  return fmt::format("{},{:03}", grouped(count / 1000), count % 1000);
}

// A module in the tree, with the parameters it holds itself.
struct ModuleEntry {
  std::string name;
  Module* module;
  int depth;
  std::vector<std::pair<std::string, Parameter*>> parameters{};
  bool has_children = false;
};

// Appends the module and its descendants, each before its children.
void collect(const std::string& name, Module& module, int depth, std::vector<ModuleEntry>& parts) {
  const std::size_t at = parts.size();
  parts.push_back({name, &module, depth});
  std::vector<std::pair<std::string, Module*>> children;
  module.visit(
      Visitor([&](const std::string& parameter,
                  Parameter& p) { parts[at].parameters.emplace_back(parameter, &p); },
              [&](const std::string& child, Module& m) { children.emplace_back(child, &m); }));
  parts[at].has_children = !children.empty();
  for (const auto& [child, m] : children) collect(child, *m, depth + 1, parts);
}

std::vector<ModuleEntry> parts_of(Module& module) {
  std::vector<ModuleEntry> parts;
  collect("", module, 0, parts);
  return parts;
}

std::string title(const ModuleEntry& part) {
  return fmt::format("{:{}}{}{}{}", "", 2 * part.depth, part.name, part.name.empty() ? "" : ": ",
                     kind_of(*part.module));
}

std::string line(const std::string& layer, const std::string& output, std::int64_t bytes,
                 std::int64_t parameters, std::int64_t parameter_bytes) {
  return fmt::format("{:<36} {:<20} {:>14} {:>12} {:>14}\n", layer, output, grouped(bytes),
                     grouped(parameters), grouped(parameter_bytes));
}

std::int64_t bytes_of(const Tensor& x) {
  return x.numel() * static_cast<std::int64_t>(size_of(x.dtype()));
}

}  // namespace

std::string to_string(Module& module) {
  std::string text;
  for (const ModuleEntry& part : parts_of(module)) {
    std::string own;
    std::int64_t count = 0;
    bool frozen = true;
    for (const auto& [name, p] : part.parameters) {
      own += fmt::format("{}{} {}", own.empty() ? "" : ", ", name, p->value.shape());
      count += p->value.numel();
      frozen = frozen && !p->trainable;
    }
    text += title(part);
    if (count > 0)
      text += fmt::format("  {}  ({}{})", own, grouped(count), frozen ? ", frozen" : "");
    text += "\n";
  }
  std::int64_t trained = 0;
  for (const Parameter* p : module.parameters()) trained += p->trainable ? p->value.numel() : 0;
  return text + fmt::format("{} parameters, {} of them trained\n",
                            grouped(module.parameter_count()), grouped(trained));
}

namespace {

// A module's results in one run: the shape of the last one, and the bytes of all together.
struct Seen {
  Shape shape;
  std::int64_t bytes = 0;
};

std::map<const Module*, Seen> results_on(Module& model, const Tensor& input) {
  std::map<const Module*, Seen> seen;
  Tape tape({.training = false});
  const ModuleHook watch([&](const Module& module, const Var&, const Var& result) {
    Seen& s = seen[&module];
    s.shape = result.shape();
    s.bytes += bytes_of(result.value());
  });
  model(tape.input(input));
  return seen;
}

}  // namespace

std::string summary(Module& model, const Tensor& input) {
  const std::map<const Module*, Seen> seen = results_on(model, input);
  std::string text = fmt::format("{:<36} {:<20} {:>14} {:>12} {:>14}\n", "layer", "output",
                                 "output bytes", "parameters", "their bytes");
  std::int64_t bytes = 0, all_parameter_bytes = 0;
  for (const ModuleEntry& part : parts_of(model)) {
    std::int64_t count = 0, parameter_bytes = 0;
    for (const auto& [name, p] : part.parameters) {
      count += p->value.numel();
      parameter_bytes += bytes_of(p->value);
    }
    const auto found = seen.find(part.module);
    const bool called = found != seen.end();
    if (called && !part.has_children) bytes += found->second.bytes;
    text += line(title(part), called ? fmt::format("{}", found->second.shape) : "-",
                 called ? found->second.bytes : 0, count, parameter_bytes);
  }
  for (const Parameter* p : model.parameters()) all_parameter_bytes += bytes_of(p->value);
  return text + line("all", "", bytes, model.parameter_count(), all_parameter_bytes);
}

}  // namespace sotto::nn
