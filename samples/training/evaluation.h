// Evaluation of models on test data in memory.
#pragma once

#include <functional>

#include "core/ranks/ranks.h"
#include "nn/data/dataset.h"
#include "nn/module.h"

namespace sotto::samples {

// Returns the outputs, [n, ...] on the CPU, of `forward` on the data in parts, whose tensors are on
// the model's device. Parts get smaller when memory runs out. Several ranks, which all call it,
// compute some parts each, the same as one rank would: rank 0 gets all outputs, and the others an
// undefined tensor.
using Forward = std::function<Var(Tape& tape, const Dataset& part)>;
Tensor outputs_of(nn::Module& model, const Dataset& data, const Forward& forward,
                  Ranks* ranks = nullptr);
// Returns those of model(inputs).
Tensor outputs_of(nn::Module& model, const Dataset& data);

}  // namespace sotto::samples
