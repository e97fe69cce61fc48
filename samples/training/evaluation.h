// Evaluation of models on test data in memory.
#pragma once

#include <functional>

#include <sotto/nn/data/dataset.h>
#include <sotto/nn/module.h>

namespace sotto::samples {

// Returns the outputs, [n, ...] on the CPU, of `forward` on the data in parts, whose tensors are on
// the model's device. Parts get smaller when memory runs out.
using Forward = std::function<Var(Tape& tape, const Dataset& part)>;
Tensor outputs_of(nn::Module& model, const Dataset& data, const Forward& forward);
// Returns those of model(inputs).
Tensor outputs_of(nn::Module& model, const Dataset& data);

}  // namespace sotto::samples
