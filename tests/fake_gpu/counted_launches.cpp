// Counters of what a pretended GPU is asked for, and its launches that fail.
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "kernels/cuda/runtime/room.h"
#include "tests/fake_gpu/host_executor.h"

namespace sotto {

bool dry() {
  static const char* const wanted = std::getenv("SOTTO_PRETENDED_DRY");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

std::vector<PrimitiveWork>& recorded_work() {
  static std::vector<PrimitiveWork> work;
  return work;
}

std::atomic<std::int64_t>& launches_at_once() {
  static std::atomic<std::int64_t> count = 0;
  return count;
}

std::atomic<std::int64_t>& failing_launch() {
  static std::atomic<std::int64_t> number = -1;
  return number;
}

std::atomic<bool>& skips_tiles() {
  static std::atomic<bool> skips = false;
  return skips;
}

FullLaunches& full_launches() {
  static FullLaunches full;
  return full;
}

void count_launch(Device device) {
  with_room(device, false, [] {
    FullLaunches& full = full_launches();
    const bool none = full.times > 0 && launches_at_once() >= full.first;
    full.times -= none;
    return !none;
  });
  if (!recorded_work().empty()) ++recorded_work().back().launches;
  if (launches_at_once()++ == failing_launch())
    throw SystemFailure("pretended GPU: too many resources requested for launch");
}

}  // namespace sotto
