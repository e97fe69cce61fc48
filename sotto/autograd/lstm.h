// The LSTM layer where the device has it as a whole; recurrent.h is what users call.
#pragma once

#include "sotto/autograd/recurrent_cells.h"

namespace sotto {

// recurrent() of Cell::lstm for checked operands of one type, recorded as `op`; nothing where it is
// not for these: steps that are not valid, a projection, or a type or device without it.
std::optional<RecurrentResult> whole_lstm(const Op& op, const Places& p,
                                          const RecurrentOptions& options);

}  // namespace sotto
