// A module's parameters in safetensors files, by name.
#pragma once

#include <map>
#include <string>

#include "core/io/safetensors.h"
#include "nn/module.h"

namespace sotto::nn {

// The values of all parameters, sharing their storage. Throws std::invalid_argument where calls of
// the module used a trainable parameter that visit() does not show: it would be missing.
std::map<std::string, Tensor> parameter_tensors(Module& module);
// Gives every parameter its value: a copy, on the parameter's device. Throws std::invalid_argument,
// naming the parameter, when one is missing, unexpected, or of another shape or dtype; then nothing
// has changed. `source` is what messages call the tensors' origin.
void set_parameters(Module& module, const std::map<std::string, Tensor>& tensors,
                    const std::string& source);

// Writes atomically. Throws SystemFailure when the file cannot be written.
void save_module(const std::string& path, Module& module,
                 const std::map<std::string, std::string>& metadata = {});
// Returns the metadata. Throws SystemFailure when the file cannot be read, and as set_parameters().
std::map<std::string, std::string> load_module(const std::string& path, Module& module);

}  // namespace sotto::nn
