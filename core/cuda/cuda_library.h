// NVIDIA GPUs as the rest of the library sees them. Everything that needs CUDA's headers is in a
// library of its own, libsotto_cuda.so, which is loaded when a GPU is first asked for: so one build
// runs on machines with and without a driver, cuBLAS and cuDNN.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/allocator/allocator.h"
#include "core/devices.h"

namespace sotto {

class Backend;

// A moment of a device's work: when all that it was recorded after is done.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work of a device that was captured. Its end waits for the device.
class CapturedLaunches {
 public:
  virtual ~CapturedLaunches() = default;
  // Does it, in order with the device's other work. Throws SystemFailure.
  virtual void replay() = 0;
};

// What libsotto_cuda.so supplies. Work on a device runs in order, on one stream of the library's,
// but for copy_beside(); a call that throws names what failed, and leaves the process usable where
// CUDA does.
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

  // Pinned memory of the host, which the device can copy from on its own.
  virtual RawMemory& pinned_memory(int index) = 0;
  // When all work asked for on the device until now is done, copies beside it left out.
  virtual std::unique_ptr<DeviceEvent> record(int index) = 0;
  // Copies bytes from pinned memory to the device on a stream beside its other work, one after the
  // other and each after its `after`. Returns at once, with when it is done: until then `from` must
  // not be written, and `to` neither read nor written.
  virtual std::unique_ptr<DeviceEvent> copy_beside(int index, void* to, const void* from,
                                                   std::size_t bytes, const DeviceEvent& after) = 0;
  // Work asked for on the device from now on begins after the event; the host does not wait.
  virtual void wait(int index, const DeviceEvent& event) = 0;
  // Returns when the event has come. Throws SystemFailure when the work before it failed.
  virtual void synchronize(const DeviceEvent& event) = 0;

  // From here to end_capture(), primitives that this thread runs on the device, and copies within
  // it, are captured and not done. Copies from the host are done at once, as is the work of other
  // threads. Not within itself. Throws SystemFailure.
  virtual void begin_capture(int index) = 0;
  // Ends it, also where it throws: SystemFailure for what cannot be captured.
  virtual std::unique_ptr<CapturedLaunches> end_capture(int index) = 0;
};

// Loads the library at the first call: from the path in the environment variable
// SOTTO_CUDA_LIBRARY, or beside libsotto.so. Throws std::invalid_argument with the reason, in one
// line, when no GPU can be used.
CudaRuntime& cuda_runtime();

// The caching allocator of a GPU. Throws std::invalid_argument when it is not there.
Allocator& cuda_allocator(int index);

// The caching allocator of a GPU's pinned memory, apart from that of the CPU: what it holds is not
// in the CPU's statistics and limit. Throws as cuda_allocator().
Allocator& pinned_allocator(int index);

// Copies bytes between any two devices; neither range may overlap the other. In captured work
// (capture.h) bytes stay on their device, or are brought from the host once and for all.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes);

// What the library's function `sotto_cuda_runtime` is: makes the runtime, or throws SystemFailure
// with the reason why there is none.
using MakeCudaRuntime = CudaRuntime* (*)();

}  // namespace sotto
