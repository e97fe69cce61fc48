// Checks the laws of operations (check_op.h) for a layer of this library or of its users.
#pragma once

#include <functional>

#include "autograd/check/check_op.h"
#include "core/random/philox.h"
#include "nn/module.h"

namespace sotto::testing {

// Checks a layer with its present parameters on inputs [n, ...], f64 or i64, that `make` draws. The
// parameters are f64 during the check and restored afterwards.
void check_layer(nn::Module& layer, const std::function<Tensor(PublicRandom&)>& make,
                 const CheckOptions& options = {});

}  // namespace sotto::testing
