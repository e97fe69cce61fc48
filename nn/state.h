// Saves and loads a module's parameters, by name, in safetensors files.
#pragma once

#include <map>
#include <string>

#include "core/io/safetensors.h"
#include "nn/module.h"

namespace sotto::nn {

// The values of all parameters, sharing their storage. Throws std::invalid_argument if calls of the
// module used a trainable parameter that visit() does not show: it would be missing.
std::map<std::string, Tensor> parameter_tensors(Module& module);
// The treatment of a tensor of another floating-point type than its parameter.
enum class OtherTypes {
  converted,  // rounded to the parameter's type; refused where a finite value would be infinite
  refused,    // for a training that must go on with the same bits
};
// Replaces every parameter's value by a copy on the parameter's device. Throws
// std::invalid_argument with the parameter's name, before any change, when one is missing,
// unexpected, of another shape, or of a type that is not converted. `source` names the origin of
// the tensors in messages.
void set_parameters(Module& module, const std::map<std::string, Tensor>& tensors,
                    const std::string& source, OtherTypes other_types = OtherTypes::converted);

// Writes the file atomically. Throws SystemFailure when it cannot be written, and
// std::invalid_argument, naming the weight, if one is quantised (nn/layers/quantized_layers.h): the
// file would lack it.
void save_module(const std::string& path, Module& module,
                 const std::map<std::string, std::string>& metadata = {});
// Returns the metadata. Weights in another floating-point type than the module's are converted.
// Throws SystemFailure when the file cannot be read, and the errors of set_parameters().
std::map<std::string, std::string> load_module(const std::string& path, Module& module);

}  // namespace sotto::nn
