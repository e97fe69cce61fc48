// Time and memory of a training step by phase: each phase has its seconds and, on each device, the
// peak of bytes in use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace sotto::memory {

class PeakMemoryTracker;

// Time and memory of all entries of one phase.
struct PhaseTotal {
  std::string name;                       // as in enter()
  double seconds = 0;                     // of all entries
  std::vector<std::size_t> peak_bytes{};  // of each of the profiler's devices
  std::int64_t entries = 0;               // number of entries
};

// Divides time into phases that follow one another: enter() each, and read totals().
class PhaseProfiler {
 public:
  explicit PhaseProfiler(std::vector<Device> devices = {cpu});
  PhaseProfiler(PhaseProfiler&&) noexcept;
  PhaseProfiler& operator=(PhaseProfiler&&) noexcept;
  ~PhaseProfiler();

  // Ends the running phase and begins another. The first call throws std::invalid_argument when a
  // device does not exist.
  void enter(const char* phase);
  void stop();  // ends the running phase
  const std::vector<Device>& devices() const { return devices_; }
  // The totals, in the order in which phases were first entered.
  const std::vector<PhaseTotal>& totals() const { return totals_; }
  // The maximum peak of all phases on one of the devices.
  std::size_t peak_bytes(std::size_t device = 0) const;

 private:
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<memory::PeakMemoryTracker>> watches_;  // one for each device
  std::vector<PhaseTotal> totals_;
  std::size_t running_ = 0;
  bool stopped_ = true;
  double since_ = 0;  // seconds of a clock that never goes back
};

}  // namespace sotto::memory
