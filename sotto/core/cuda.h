// NVIDIA GPUs as the rest of the library sees them. Everything that needs CUDA's headers is in a
// library of its own, libsotto_cuda.so, which is loaded when a GPU is first asked for: so one build
// runs on machines with and without a driver, cuBLAS and cuDNN.
#pragma once

#include <cstddef>
#include <vector>

#include "sotto/core/allocator.h"
#include "sotto/core/devices.h"

namespace sotto {

class Backend;

// What libsotto_cuda.so supplies. Work on a device runs in order, on one stream of the library's;
// a call that throws names what failed, and leaves the process usable where CUDA does.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  // The usable GPUs; their indices count from 0.
  virtual const std::vector<DeviceInfo>& devices() const = 0;
  // nullptr from allocate() when the device has no more. release() waits for the device.
  virtual RawMemory& memory(int index) = 0;
  virtual Backend& backend(int index) = 0;
  // Copies bytes between the host and devices, in order with the device's other work. Returns when
  // the host's bytes have been read or written.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device,
                    std::size_t bytes) = 0;
  // Returns when all work asked for on the device is done. Throws SystemFailure when it failed.
  virtual void synchronize(int index) = 0;
};

// Loads the library at the first call: from the path in the environment variable
// SOTTO_CUDA_LIBRARY, or beside libsotto.so. Throws std::invalid_argument with the reason, in one
// line, when no GPU can be used.
CudaRuntime& cuda_runtime();

// The caching allocator of a GPU. Throws std::invalid_argument when it is not there.
Allocator& cuda_allocator(int index);

// Copies bytes between any two devices; neither range may overlap the other.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes);

// What the library's function `sotto_cuda_runtime` is: makes the runtime, or throws SystemFailure
// with the reason why there is none.
using MakeCudaRuntime = CudaRuntime* (*)();

}  // namespace sotto
