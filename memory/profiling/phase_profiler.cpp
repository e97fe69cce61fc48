#include "memory/profiling/phase_profiler.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "memory/profiling/peak_memory.h"

namespace sotto::memory {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

PhaseProfiler::PhaseProfiler(std::vector<Device> devices) : devices_(std::move(devices)) {}
PhaseProfiler::PhaseProfiler(PhaseProfiler&&) noexcept = default;
PhaseProfiler& PhaseProfiler::operator=(PhaseProfiler&&) noexcept = default;
PhaseProfiler::~PhaseProfiler() = default;

void PhaseProfiler::enter(const char* phase) {
  stop();
  while (watches_.size() < devices_.size())
    watches_.push_back(std::make_unique<memory::PeakMemoryTracker>(devices_[watches_.size()]));
  const auto found = std::find_if(totals_.begin(), totals_.end(),
                                  [&](const PhaseTotal& total) { return total.name == phase; });
  running_ = static_cast<std::size_t>(found - totals_.begin());
  if (found == totals_.end()) {
    totals_.push_back({.name = phase, .peak_bytes = std::vector<std::size_t>(devices_.size())});
  }
  ++totals_[running_].entries;
  for (const auto& watch : watches_) watch->restart();
  stopped_ = false;
  since_ = seconds_now();
}

void PhaseProfiler::stop() {
  if (stopped_) return;
  PhaseTotal& total = totals_[running_];
  total.seconds += seconds_now() - since_;
  for (std::size_t k = 0; k < watches_.size(); ++k)
    total.peak_bytes[k] = std::max(total.peak_bytes[k], watches_[k]->peak());
  stopped_ = true;
}

std::size_t PhaseProfiler::peak_bytes(std::size_t device) const {
  check(device < devices_.size(), "PhaseProfiler: device {} of {}", device, devices_.size());
  std::size_t peak = 0;
  for (const PhaseTotal& total : totals_) peak = std::max(peak, total.peak_bytes[device]);
  return peak;
}

}  // namespace sotto::memory
