// Descriptions of a model: the kinds, shapes and sizes of its modules.
#pragma once

#include <string>

#include "nn/module.h"

namespace sotto::nn {

// The class name without namespaces: "Linear", "Conv<2>".
std::string kind_of(const Module& module);

// One line for each module, indented by depth: name, kind, parameter shapes and element count, with
// "frozen" if none of its parameters is trainable. The last line has the totals.
std::string to_string(Module& module);

// A table with a line for each module, indented by depth, after one forward run on `input` (samples
// on axis 0; i64 for ids): the shape of the module's last result, the bytes of all its results, and
// the number and bytes of its parameters. A module that was not called through operator() has no
// shape. The last line sums the results of the modules without children.
std::string summary(Module& model, const Tensor& input);

}  // namespace sotto::nn
