// 16-bit products on GPUs are fast only if rows start at multiples of 16 bytes; the logits of a
// vocabulary of 50,257 do not. linear() pads its output with zero columns and returns a view of the
// real ones. Only linear() and cross_entropy() use the padding; every other operation gets a value
// whose rows have gaps.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace sotto {

// The number of columns that linear() computes for a result of `columns`: `columns` itself if
// padding gains nothing.
std::int64_t padded_columns(std::int64_t columns, Dtype dtype, Device device);

}  // namespace sotto
