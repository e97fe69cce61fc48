// Brings the operands of an operation to one device.
#pragma once

#include "core/devices.h"
#include "core/error.h"
#include "core/tensor.h"
#include "kernels/backend.h"

namespace sotto {

inline Backend& backend_of(const Tensor& x) { return backend(x.device()); }

// x, copied to the GPU of `other` if x is on the CPU and `other` is not.
inline Tensor to_device_of(const Tensor& x, const Tensor& other) {
  return x.defined() && other.device() != cpu && x.device() == cpu ? x.to(other.device()) : x;
}
// True if one operand is on a GPU and the other on the CPU. Throws std::invalid_argument for two
// different GPUs.
inline bool on_different_devices(const Tensor& a, const Tensor& b) {
  if (a.device() == b.device()) return false;
  check(a.device() == cpu || b.device() == cpu, "operands are on two GPUs: {} and {}",
        name(a.device()), name(b.device()));
  return true;
}

// Throws std::invalid_argument, which names the operation, where the dtypes differ.
inline void check_same_type(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), "{}: dtypes differ: {} and {}", op, name(a.dtype()),
        name(b.dtype()));
}

}  // namespace sotto
