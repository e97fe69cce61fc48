#include "nn/state.h"

#include <algorithm>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// Throws if a call of this module used a trainable parameter that is not among `parameters`.
void check_shown(const Module& module, const std::vector<Parameter*>& parameters) {
  for (const auto& [parameter, owner] : module.unshown()) {
    const auto at = std::find(parameters.begin(), parameters.end(), parameter);
    check(at != parameters.end(), "module: a parameter would be left out: that of {}", owner);
  }
}

void check_all_shown(Module& module, const std::vector<Parameter*>& parameters) {
  check_shown(module, parameters);
  module.visit(
      Visitor([](const std::string&, Parameter&) {},
              [&](const std::string&, Module& child) { check_all_shown(child, parameters); }));
}

}  // namespace

std::map<std::string, Tensor> parameter_tensors(Module& module) {
  check_all_shown(module, module.parameters());
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, parameter] : module.named_parameters()) {
    check(tensors.emplace(name, parameter->value).second, "module: two parameters are called {}",
          name);
  }
  return tensors;
}

void set_parameters(Module& module, const std::map<std::string, Tensor>& tensors,
                    const std::string& source) {
  const std::map<std::string, Tensor> present = parameter_tensors(module);
  for (const auto& [name, tensor] : tensors) {
    check(present.contains(name), "{}: {} is no parameter of the module", source, name);
  }
  std::vector<Tensor> values;
  for (const auto& [name, parameter] : module.named_parameters()) {
    const auto at = tensors.find(name);
    check(at != tensors.end(), "{}: {} is missing", source, name);
    const Tensor& own = parameter->value;
    const Tensor& read = at->second;
    check(read.shape() == own.shape() && read.dtype() == own.dtype(),
          "{}: {} is {} {} where {} {} is needed", source, name, sotto::name(read.dtype()),
          read.shape(), sotto::name(own.dtype()), own.shape());
    values.push_back(empty_like(own));
    copy_into(read, values.back());
  }
  const std::vector<Parameter*> parameters = module.parameters();
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i]->value = values[i];
}

void save_module(const std::string& path, Module& module,
                 const std::map<std::string, std::string>& metadata) {
  save_safetensors(path, {.tensors = parameter_tensors(module), .metadata = metadata});
}

std::map<std::string, std::string> load_module(const std::string& path, Module& module) {
  const TensorFile file = load_safetensors(path);
  set_parameters(module, file.tensors, path);
  return file.metadata;
}

}  // namespace sotto::nn
