// Products with matrices of quantised blocks, and look-ups in them. The blocks are frozen: they are
// equal for all samples and have no gradient. They stay as they lie in memory.
#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/block_matrix.h"

namespace sotto {

// y[.., o] = sum_i x[.., i] w[o, i] + b[o]: linear() by the widened w, of which it keeps no value
// of x for backward. Throws std::invalid_argument for a value on a GPU, which has no such products.
Var quantized_linear(const Var& x, const BlockMatrix& w,
                     const std::optional<Var>& b = std::nullopt);

// y[.., :] = table[ids[.., :]], without gradient: f32, or f64 on a tape of f64.
Var quantized_embedding(const BlockMatrix& table, const Var& ids);

}  // namespace sotto
