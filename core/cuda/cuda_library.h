// The seam to NVIDIA GPUs. All code that needs CUDA's headers is in a second library,
// libsotto_cuda.so, which is loaded when a GPU is first asked for. One build therefore runs on
// machines with and without a driver, cuBLAS and cuDNN.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/allocator/allocator.h"
#include "core/devices.h"

namespace sotto {

class Backend;

// A point in a device's work, reached when all work started before record() is done.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// A CUDA graph. Its destructor waits for the device.
class CapturedLaunches {
 public:
  virtual ~CapturedLaunches() = default;
  // Runs the captured work, in order with the device's other work. Throws SystemFailure.
  virtual void replay() = 0;
};

// The functions that libsotto_cuda.so supplies. Work on a device runs in order, on one stream of
// the library's own; only copy_beside() uses a second stream. An exception names the call that
// failed; the process stays usable where CUDA allows it.
class CudaRuntime {
 public:
  virtual ~CudaRuntime() = default;
  // The usable GPUs; their indices count from 0.
  virtual const std::vector<DeviceInfo>& devices() const = 0;
  // allocate() returns nullptr when the device has no memory left. release() waits for the device.
  virtual RawMemory& memory(int index) = 0;
  virtual Backend& backend(int index) = 0;
  // Copies bytes between the host and devices, in order with the device's other work; between two
  // devices in order with the target's. Returns when the host's bytes have been read or written.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device,
                    std::size_t bytes) = 0;
  // Returns when all work started on the device is done. Throws SystemFailure if it failed.
  virtual void synchronize(int index) = 0;

  // Pinned memory of the host, from which the device copies asynchronously.
  virtual RawMemory& pinned_memory(int index) = 0;
  // An event reached when all work started on the device so far is done; copies of copy_beside()
  // are not part of it.
  virtual std::unique_ptr<DeviceEvent> record(int index) = 0;
  // Copies bytes from pinned memory to the device on the second stream: copies run one after the
  // other, each after its event `after`. Returns at once, with the event of the copy's end; until
  // then `from` must not be written, and `to` neither read nor written.
  virtual std::unique_ptr<DeviceEvent> copy_beside(int index, void* to, const void* from,
                                                   std::size_t bytes, const DeviceEvent& after) = 0;
  // Orders the device's future work after the event; the host does not wait.
  virtual void wait(int index, const DeviceEvent& event) = 0;
  // Returns when the event is reached. Throws SystemFailure if the work before it failed.
  virtual void synchronize(const DeviceEvent& event) = 0;

  // Returns whether the event is reached, at once. Throws SystemFailure if the work before it
  // failed.
  virtual bool reached(const DeviceEvent& event) = 0;

  // Returns the cudaStream_t of the device's work, and makes the device the calling thread's.
  virtual void* stream(int index) = 0;
  // Returns a text that no other GPU of the host has.
  virtual std::string bus_id(int index) = 0;
  // Returns the file name of the NCCL to load; empty: none.
  virtual std::string nccl_library() const = 0;

  // Begins a capture: until end_capture(), primitives that this thread runs on the device, and
  // copies inside the device, are captured instead of run. Copies from the host, and work of other
  // threads, still run at once. Captures do not nest. Throws SystemFailure.
  virtual void begin_capture(int index) = 0;
  // Ends the capture, also when it throws SystemFailure because the work cannot be captured.
  virtual std::unique_ptr<CapturedLaunches> end_capture(int index) = 0;
};

// Loads the library at the first call: from the path in the environment variable
// SOTTO_CUDA_LIBRARY, else from the folder of libsotto.so. Throws std::invalid_argument with the
// reason, in one line, if no GPU can be used.
CudaRuntime& cuda_runtime();

// The caching allocator of a GPU. Throws std::invalid_argument if the GPU does not exist.
Allocator& cuda_allocator(int index);

// The caching allocator of a GPU's pinned memory. It is separate from the allocator of the CPU: its
// blocks are not in the CPU's statistics and limit. Throws as cuda_allocator().
Allocator& pinned_allocator(int index);

// Copies bytes between any two devices; the ranges must not overlap. In captured work (capture.h) a
// copy stays inside the device, or comes from the host once, at the capture.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes);

// The type of the library's entry point `sotto_cuda_runtime`: it makes the runtime, or throws
// SystemFailure with the reason why it cannot.
using MakeCudaRuntime = CudaRuntime* (*)();

}  // namespace sotto
