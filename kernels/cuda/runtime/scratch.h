// Device memory for the duration of one primitive. It may be released while the device still uses
// it: a device's work runs in order, so the next user of the block runs later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace sotto {

// Wrappers of the device's allocator, whose header device code cannot include.
void* take_scratch(Device device, std::size_t bytes);
void give_scratch_back(Device device, void* address) noexcept;

template <class T>
class Scratch {
 public:
  Scratch(Device device, std::int64_t count)
      : device_(device),
        data_(static_cast<T*>(take_scratch(device, static_cast<std::size_t>(count) * sizeof(T)))) {}
  ~Scratch() { give_scratch_back(device_, data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }

 private:
  Device device_;
  T* data_;
};

}  // namespace sotto
