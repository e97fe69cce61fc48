// Where a training step's time and memory go: phases that follow one another, each with its seconds
// and the largest number of bytes in use during it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sotto {

struct PhaseTotal {
  std::string name;
  double seconds = 0;
  std::size_t peak_bytes = 0;
  std::int64_t entries = 0;
};

class PhaseClock {
 public:
  // Ends the running phase and begins another. Peaks are those of the CPU's allocator, whose own
  // peak is reset.
  void enter(const char* phase);
  // Ends the running phase.
  void stop();
  // In the order in which phases were first entered.
  const std::vector<PhaseTotal>& totals() const { return totals_; }
  // The largest peak of all phases.
  std::size_t peak_bytes() const;

 private:
  std::vector<PhaseTotal> totals_;
  std::size_t running_ = 0;
  bool stopped_ = true;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace sotto
