// Layers of a model that keep the quantised blocks of a file.
#pragma once

#include <string>

#include "core/block_matrix.h"
#include "nn/module.h"

namespace sotto::nn {

// Puts a quantised layer of these blocks in the place of the linear layer or table whose weight has
// this path. Returns false, and changes nothing, where there is none that can be replaced. Throws
// std::invalid_argument for another shape than the layer's.
bool replace_by_quantized(Module& model, const std::string& weight, const BlockMatrix& blocks);

}  // namespace sotto::nn
