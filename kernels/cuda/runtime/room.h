// Memory that CUDA and its libraries need besides tensors, for example for a kernel's code, which
// its first launch loads. Includes no CUDA, because tests/fake_gpu uses it.
#pragma once

#include "core/device.h"

namespace sotto {

// Gives the cached blocks of the device's allocator back. Throws OutOfMemory in captured work,
// during which memory is not given back.
void make_room(Device device);
// Throws OutOfMemory.
[[noreturn]] void no_room(Device device);

// Returns f(), a status. If that is `full`, calls f() again after make_room(). Throws OutOfMemory
// if that does not help.
template <class Status, class F>
Status with_room(Device device, Status full, const F& f) {
  Status status = f();
  if (status != full) [[likely]]
    return status;
  make_room(device);
  status = f();
  if (status == full) no_room(device);
  return status;
}

}  // namespace sotto
