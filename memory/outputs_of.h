// The outputs of a model for test data in memory, on one rank or several.
#pragma once

#include "core/ranks/ranks.h"
#include "nn/data/dataset.h"
#include "nn/predict.h"

namespace sotto::memory {

// Returns the outputs, [n, ...] on the CPU, of `forward` on the data in parts, whose tensors are on
// the model's device. Parts have as many samples as 256 MiB hold by the tensors of the first, at
// most 500, and get smaller when memory runs out. Several ranks, which all call it, compute some
// parts each, the same as one rank would: rank 0 gets all outputs, and the others an undefined
// tensor.
Tensor outputs_of(nn::Module& model, const Dataset& data, const nn::Forward& forward,
                  Ranks* ranks = nullptr);
// Returns those of model(inputs).
Tensor outputs_of(nn::Module& model, const Dataset& data);

}  // namespace sotto::memory
