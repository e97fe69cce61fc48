// Conversion of class labels from the types that data sets store them in.
#pragma once

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

// Labels in i32 or u8 as i64, the type that losses compute with; others unchanged.
inline Tensor as_labels(const Tensor& numbers) {
  const bool narrow = numbers.dtype() == Dtype::i32 || numbers.dtype() == Dtype::u8;
  return narrow ? to_dtype(numbers, Dtype::i64) : numbers;
}

}  // namespace sotto
