#include "nn/state.h"

#include <algorithm>
#include <cmath>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers/quantized_layers.h"

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

// A copy in the type and on the device of `own`. Throws if a finite value becomes infinite.
Tensor in_type_of(const Tensor& own, const Tensor& read, const std::string& name) {
  const Tensor y = empty_like(own);
  copy_into(read, y);
  if (size_of(own.dtype()) > size_of(read.dtype()) || own.dtype() == read.dtype()) return y;
  const auto in_f64 = [](const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); };
  const std::vector<double> before = in_f64(read), after = in_f64(y);
  for (std::size_t i = 0; i < before.size(); ++i) {
    check(std::isfinite(after[i]) || !std::isfinite(before[i]),
          "{} holds {} in {}, beyond the range of {}", name, before[i], sotto::name(read.dtype()),
          sotto::name(own.dtype()));
  }
  return y;
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
                    const std::string& source, OtherTypes other_types) {
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
    const bool converts = other_types == OtherTypes::converted && is_float(read.dtype());
    check(read.shape() == own.shape() && (converts || read.dtype() == own.dtype()),
          "{}: {} is {} {} where {} {} is needed", source, name, sotto::name(read.dtype()),
          read.shape(), sotto::name(own.dtype()), own.shape());
    values.push_back(in_type_of(own, read, fmt::format("{}: {}", source, name)));
  }
  const std::vector<Parameter*> parameters = module.parameters();
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i]->value = values[i];
}

void save_module(const std::string& path, Module& module,
                 const std::map<std::string, std::string>& metadata) {
  for (const NamedBlocks& one : named_blocks(module))
    check(false,
          "save_module: {} is quantised ({}) and no parameter, so that {} would lack it; save what "
          "is trained, or call widen_blocks()",
          one.name, name(one.blocks->format), path);
  save_safetensors(path, {.tensors = parameter_tensors(module), .metadata = metadata});
}

std::map<std::string, std::string> load_module(const std::string& path, Module& module) {
  const TensorFile file = load_safetensors(path);
  set_parameters(module, file.tensors, path);
  return file.metadata;
}

}  // namespace sotto::nn
