#include "memory/profiling/peak_memory.h"

namespace sotto::memory {

PeakMemoryTracker::PeakMemoryTracker(Device device) : device_(device) {
  allocator(device).add_watch(*this);
  restart();
}

PeakMemoryTracker::~PeakMemoryTracker() { allocator(device_).remove_watch(*this); }

void PeakMemoryTracker::restart() {
  peak_ = 0;
  std::size_t unset = 0;
  // An allocation on another thread may have set a later value already.
  peak_.compare_exchange_strong(unset, allocator(device_).statistics().current);
}

void PeakMemoryTracker::allocated(const Block& block) {
  // The allocator's lock is held: no other thread raises it.
  if (block.current > peak_) peak_ = block.current;
}

}  // namespace sotto::memory
