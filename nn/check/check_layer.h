// The laws of operations (check_op.h) for layers: ours, and those of this library's users.
#pragma once

#include <functional>

#include "autograd/check/check_op.h"
#include "nn/module.h"

namespace sotto::testing {

// Holds a layer with the parameters it has to the same laws, on inputs [n, ...] in f64 or i64 that
// `make` draws. Parameters are in double while they are checked, and afterwards as before.
void check_layer(nn::Module& layer, const std::function<Tensor(PublicRandom&)>& make,
                 const CheckOptions& options = {});

}  // namespace sotto::testing
