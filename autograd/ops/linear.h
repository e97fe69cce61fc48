// Matrix products and table look-ups: the ops whose parameters have factored gradients.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

// y[.., o] = sum_i x[.., i] w[o, i] + b[o]; w [o, i] and b [o] are shared by all samples. The
// samples may lie along any axis of x but the last.
Var linear(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt);

// The product of the last two axes; leading axes broadcast. A vector counts as a row on the left
// and as a column on the right, and its axis is dropped from the result.
Var matmul(const Var& a, const Var& b);

// y[.., :] = table[ids[..], :], table [rows, d] shared by all samples, ids i64 of any shape. Rows
// that hold `padding` look up like others and get no gradient. Throws for ids outside the table;
// on a GPU, which the host does not wait for, one past the end reads as NaN and one below as zeros.
Var embedding(const Var& table, const Var& ids, std::optional<std::int64_t> padding = std::nullopt);

}  // namespace sotto
