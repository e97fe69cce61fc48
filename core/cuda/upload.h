// Asynchronous upload of a tensor to a GPU: the host writes it into pinned memory, a second stream
// copies it while the GPU computes, and the work that reads it waits for the copy.
#pragma once

#include <memory>

#include "core/cuda/cuda_library.h"
#include "core/tensor.h"

namespace sotto {

// Uploads one tensor after the other: begin(), room(), send(), arrive(). Events order the use of
// device memory: the copy starts after the work that was started before begin(), and ends before
// the work that is started after arrive(). The pinned buffer is rewritten only after its copy is
// done. Calls must not overlap, but another thread may call room() and send().
class Upload {
 public:
  // Throws std::invalid_argument unless `device` is a usable GPU.
  explicit Upload(Device device);
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  // Waits until the copy is done.
  ~Upload();

  // Allocates the next tensor on the device; drops one that has not arrived. Throws OutOfMemory.
  void begin(const Shape& shape, Dtype dtype);
  // The pinned buffer for the tensor's values, row-major. Waits for an earlier copy from it.
  std::byte* room();
  // Starts the copy; the values must have been written.
  void send();
  // Returns the tensor. Work started from now on reads its new values; the host does not wait.
  // Throws std::invalid_argument if nothing was sent.
  Tensor arrive();

 private:
  int index_;
  Tensor tensor_;                       // undefined between arrive() and begin()
  std::unique_ptr<DeviceEvent> after_;  // end of the earlier work that may use the tensor's memory
  std::unique_ptr<DeviceEvent> sent_;   // end of the last copy from `room_`
  bool on_its_way_ = false;             // true while no work waits for the copy yet
  void* room_ = nullptr;
  std::size_t bytes_ = 0;  // size of `room_`
};

}  // namespace sotto
