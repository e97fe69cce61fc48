// Device memory for the length of one primitive. It may be given back while the device still works
// on it: what is allocated next is used by later work, and a device's work runs in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sotto/core/allocator.h"

namespace sotto {

template <class T>
class Scratch {
 public:
  Scratch(Device device, std::int64_t count)
      : allocator_(allocator(device)),
        bytes_(static_cast<std::size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(allocator_.allocate(bytes_))) {}
  ~Scratch() { allocator_.release(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }

 private:
  Allocator& allocator_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace sotto
