// Matrix products and table look-ups: the ops whose parameters have factored per-sample gradients.
#pragma once

#include <optional>

#include "autograd/tape.h"

namespace sotto {

// y[.., o] = sum_i x[.., i] w[o, i] + b[o]; w [o, i] and b [o] are shared by all samples, whose
// axis may be any axis of x except the last.
Var linear(const Var& x, const Var& w, const std::optional<Var>& b = std::nullopt);

// The matrix product of the last two axes; leading axes broadcast. A vector is a row on the left
// and a column on the right, and its axis is dropped from the result.
Var matmul(const Var& a, const Var& b);

// y[.., :] = table[ids[..], :]; table [rows, d] is shared by all samples, ids are i64 of any shape.
// The row `padding` is looked up but gets no gradient. Throws for ids and a padding outside the
// table; with ids on a GPU, an id past the end reads as NaN and a negative one as zeros.
Var embedding(const Var& table, const Var& ids, std::optional<std::int64_t> padding = std::nullopt);

// A padding row counted from the start of a table of `rows` rows: a negative one counts from the
// end. Throws std::invalid_argument, naming `op`, if there is no such row.
std::optional<std::int64_t> padding_row(const char* op, std::optional<std::int64_t> padding,
                                        std::int64_t rows);

}  // namespace sotto
