// Memory that is exhausted at a chosen moment.
#pragma once

#include <cstdint>

#include "core/allocator/allocator.h"

namespace sotto {

// Refuses the k-th request to a device while it lives.
class FailingMemory final : public AllocationObserver {
 public:
  explicit FailingMemory(std::int64_t k, Device device = cpu) : left_(k), device_(device) {
    allocator(device).add_watch(*this);
  }
  ~FailingMemory() override { allocator(device_).remove_watch(*this); }
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;
  bool allows(std::size_t) override { return left_-- != 0; }
  void allocated(const Block&) override {}
  void released(const Block&) override {}
  bool failed() const { return left_ < 0; }

 private:
  std::int64_t left_;
  Device device_;
};

}  // namespace sotto
