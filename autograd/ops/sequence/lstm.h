// The LSTM layer as one primitive; recurrent.h is what users call.
#pragma once

#include "autograd/ops/sequence/recurrent_cells.h"

namespace sotto {

// recurrent() of Cell::lstm for checked operands of one type, recorded as `op`; nothing where it is
// not for these: steps that are not valid, a projection, 16 bits, or operands on two devices.
std::optional<RecurrentResult> whole_lstm(const Op& op, const Places& p,
                                          const RecurrentOptions& options);

}  // namespace sotto
