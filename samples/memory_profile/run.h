// Makes two training steps and records the memory of the second.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "memory/planning/planner.h"
#include "memory/profiling/timeline.h"
#include "samples/memory_profile/options.h"

namespace sotto::memory_profile {

struct StepProfile {
  std::optional<memory::Plan> plan;  // the strategy that keeps --memory-limit
  std::int64_t parameters = 0;
  MemoryStatistics statistics;  // after the step
  std::size_t first = 0;        // bytes in use before the step
  std::size_t peak = 0;
  memory::Timeline::Curve curve;
  std::vector<memory::Timeline::Share> kinds, ops, modules;  // at the peak
  std::vector<std::pair<MemoryLabel, std::size_t>> owners;
  std::vector<memory::Timeline::Phase> phases;
};

// Throws OutOfMemory when the limit is too low.
StepProfile run(const Options& options);

}  // namespace sotto::memory_profile
