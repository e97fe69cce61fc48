// The LSTM layer as one primitive; users call recurrent().
#pragma once

#include "autograd/op.h"
#include "autograd/ops/sequence/recurrent_cells.h"

namespace sotto {

// recurrent() of Cell::lstm for checked operands of one type, recorded as `op`. Returns nullopt if
// the primitive does not support them: `lengths`, a projection, 16 bits, or operands on two
// devices.
std::optional<RecurrentResult> fused_lstm(const Op& op, const OpInputs& p,
                                          const SequenceOptions& options);

}  // namespace sotto
