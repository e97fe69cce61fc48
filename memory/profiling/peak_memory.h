// Tracks the peak of bytes in use on a device over a span of its own; unlike
// Allocator::reset_peak(), it does not disturb other measurements.
#pragma once

#include <atomic>
#include <cstddef>

#include "core/allocator/allocator.h"

namespace sotto::memory {

// Measures peak memory from its construction or the last restart().
class PeakMemoryTracker final : public AllocationObserver {
 public:
  // Throws std::invalid_argument when the device does not exist.
  explicit PeakMemoryTracker(Device device);
  ~PeakMemoryTracker() override;
  PeakMemoryTracker(const PeakMemoryTracker&) = delete;
  PeakMemoryTracker& operator=(const PeakMemoryTracker&) = delete;

  Device device() const { return device_; }
  // The peak of bytes in use since the start or the last restart().
  std::size_t peak() const { return peak_; }
  void restart();

  void allocated(const Block& block) override;
  void released(const Block&) override {}

 private:
  Device device_;
  std::atomic<std::size_t> peak_ = 0;
};

}  // namespace sotto::memory
