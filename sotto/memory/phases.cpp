#include "sotto/memory/phases.h"

#include <algorithm>

#include "sotto/core/allocator.h"

namespace sotto {

void PhaseClock::enter(const char* phase) {
  stop();
  const auto found = std::find_if(totals_.begin(), totals_.end(),
                                  [&](const PhaseTotal& total) { return total.name == phase; });
  running_ = static_cast<std::size_t>(found - totals_.begin());
  if (found == totals_.end()) totals_.push_back({.name = phase});
  ++totals_[running_].entries;
  allocator(cpu).reset_peak();
  stopped_ = false;
  since_ = std::chrono::steady_clock::now();
}

void PhaseClock::stop() {
  if (stopped_) return;
  PhaseTotal& total = totals_[running_];
  total.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  total.peak_bytes = std::max(total.peak_bytes, allocator(cpu).statistics().peak);
  stopped_ = true;
}

std::size_t PhaseClock::peak_bytes() const {
  std::size_t peak = 0;
  for (const PhaseTotal& total : totals_) peak = std::max(peak, total.peak_bytes);
  return peak;
}

}  // namespace sotto
