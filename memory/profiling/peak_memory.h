// The most bytes in use on a device over a time of one's own: unlike Allocator::reset_peak() it
// changes nothing for others who look at a peak.
#pragma once

#include <atomic>
#include <cstddef>

#include "core/allocator/allocator.h"

namespace sotto::memory {

class PeakMemoryTracker final : public AllocationObserver {
 public:
  // From now on. Throws std::invalid_argument when the device is not there.
  explicit PeakMemoryTracker(Device device);
  ~PeakMemoryTracker() override;
  PeakMemoryTracker(const PeakMemoryTracker&) = delete;
  PeakMemoryTracker& operator=(const PeakMemoryTracker&) = delete;

  Device device() const { return device_; }
  // The most bytes in use at a time since the start or restart().
  std::size_t peak() const { return peak_; }
  void restart();

  void allocated(const Block& block) override;
  void released(const Block&) override {}

 private:
  Device device_;
  std::atomic<std::size_t> peak_ = 0;
};

}  // namespace sotto::memory
