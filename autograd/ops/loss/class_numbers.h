// Conversion of class labels from the types that data sets store them in.
#pragma once

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

// Converts labels in i32 or u8 to i64, the type of the losses' kernels; returns any other tensor
// unchanged.
inline Tensor as_labels(const Tensor& numbers) {
  const bool narrow = numbers.dtype() == Dtype::i32 || numbers.dtype() == Dtype::u8;
  return narrow ? to_dtype(numbers, Dtype::i64) : numbers;
}

}  // namespace sotto
