// A tensor on its way from the host to a GPU while the GPU computes: written by the host into
// pinned memory, copied from there beside other work, and waited for by the work that reads it.
#pragma once

#include <memory>

#include "core/cuda/cuda_library.h"
#include "core/tensor.h"

namespace sotto {

// For one tensor after the other: begin(), room(), send(), arrive(). All that uses the device's
// memory is ordered by events: the copy comes after the work that was asked for before begin(), and
// before the work that is asked for after arrive(); pinned memory is written again when its copy is
// done. Calls must not overlap, but room() and send() may be another thread's.
class Upload {
 public:
  // Throws std::invalid_argument unless `device` is a GPU that can be used.
  explicit Upload(Device device);
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;
  // Waits until the copy is done.
  ~Upload();

  // The next tensor, on the device; one that did not arrive is given up. Throws OutOfMemory.
  void begin(const Shape& shape, Dtype dtype);
  // Where the host writes its values, row-major. Waits until an earlier copy from there is done.
  std::byte* room();
  // The values are written: the copy begins.
  void send();
  // The tensor. Work on it that is asked for from now on finds the values; the host does not wait.
  // Throws std::invalid_argument when nothing was sent.
  Tensor arrive();

 private:
  void give_up();

  int index_;
  Tensor tensor_;                       // none between arrive() and begin()
  std::unique_ptr<DeviceEvent> after_;  // when the tensor's memory is free of earlier work
  std::unique_ptr<DeviceEvent> sent_;   // when the last copy from `room_` is done
  bool on_its_way_ = false;             // the tensor's copy, which nothing waits for yet
  void* room_ = nullptr;
  std::size_t bytes_ = 0;  // of the room
};

}  // namespace sotto
