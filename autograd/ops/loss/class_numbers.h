// Class numbers of targets, in the types that data sets have them in.
#pragma once

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

// i32 and u8 as i64, which losses compute with; anything else as it is.
inline Tensor as_labels(const Tensor& numbers) {
  const bool narrow = numbers.dtype() == Dtype::i32 || numbers.dtype() == Dtype::u8;
  return narrow ? to_dtype(numbers, Dtype::i64) : numbers;
}

}  // namespace sotto
