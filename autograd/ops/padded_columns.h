// Wide results in 16 bits on a GPU, such as the logits of a vocabulary of 50,257: libraries
// multiply fast only where rows begin at multiples of 16 bytes. linear() then computes further
// columns, which are zero in its weight and in its gradient and count for nothing, and its result
// is a view of the first ones. Only linear() and cross_entropy() know of them: to all others the
// result is a value whose rows have gaps.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace sotto {

// The number of columns that linear() computes for a result of `columns`: `columns` itself where
// nothing is gained, which this function alone decides.
std::int64_t padded_columns(std::int64_t columns, Dtype dtype, Device device);

}  // namespace sotto
